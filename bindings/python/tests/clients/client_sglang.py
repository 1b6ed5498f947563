# SPDX-License-Identifier: Apache-2.0
"""sglang.srt.layers.moe.token_dispatcher.deepep: its normal and its low-latency dispatcher."""
import enum
import types

import torch
from deep_ep.utils.math import per_token_cast_to_fp8
from layer import EXPERTS, TOP_K, Layer, from_fp8
from stubs import modules

NAME = "sglang.srt.layers.moe.token_dispatcher.deepep"


class Mode(enum.Enum):
    NORMAL = "normal"
    LOW_LATENCY = "low_latency"
    AUTO = "auto"

    def enable_normal(self):
        return self is not Mode.LOW_LATENCY

    def enable_low_latency(self):
        return self is not Mode.NORMAL


class Type(enum.Enum):
    BF16, FP8, INT8, NVFP4, MXFP4, MXFP8 = range(6)


class Variables:
    def __getattr__(self, name):
        value = 32 if name == "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK" else False
        return types.SimpleNamespace(get=lambda: value)


layer = Layer(hidden=256, dtype=torch.bfloat16)
wanted = [Type.BF16]
resources = types.SimpleNamespace(buffers={})
torch.cuda.get_device_properties = lambda device=None: types.SimpleNamespace(multi_processor_count=132)
deepep, = modules(
    "sglang", [NAME], DeepEPMode=Mode, DispatcherOutputDtype=Type, envs=Variables(), get_resources=lambda: resources,
    get_deepep_output_dtype=lambda _: wanted[0], get_deepep_config=lambda: None, is_tbo_enabled=lambda: True, is_npu=lambda: False,
    is_hip=lambda: False, is_blackwell=lambda: False, is_flashinfer_available=lambda: False, get_bool_env_var=lambda *_: False,
    get_cuda_version=lambda: (13, 0), get_is_extend_in_batch=lambda: True,
    deep_gemm_wrapper=types.SimpleNamespace(ENABLE_JIT_DEEPGEMM=True, DEEPGEMM_SCALE_UE8M0=False, DEEPGEMM_BLACKWELL=False),
    sglang_per_token_group_quant_fp8=lambda x, *_, **__: per_token_cast_to_fp8(x))
assert deepep.use_deepep, deepep._deepep_import_error
settings = dict(group=layer.group, router_topk=TOP_K, permute_fusion=True, num_experts=EXPERTS, num_local_experts=layer.local,
                hidden_size=layer.hidden, params_dtype=torch.bfloat16, deepep_mode=Mode.AUTO)
topk = types.SimpleNamespace(topk_weights=layer.weights, topk_ids=layer.ids.int())


def run(dispatcher, compute):
    got = dispatcher.dispatch_b(*dispatcher.dispatch_a(layer.x, topk))
    rows = got.hidden_states.float() if got.hidden_states_scale is None else from_fp8(got.hidden_states, got.hidden_states_scale)
    return dispatcher.combine_b(*dispatcher.combine_a(compute(got, rows), got.topk_ids, got.topk_weights))


for wanted[0] in (Type.BF16, Type.FP8):
    fp8 = wanted[0] is Type.FP8
    for asynchronous in (False, True):
        y = run(deepep._DeepEPDispatcherImplNormal(async_finish=asynchronous, **settings),
                lambda got, rows: layer.scaled(rows, got.topk_ids, got.topk_weights))
        layer.check_inference(f"normal, fp8={fp8}, asynchronous={asynchronous}", y, fp8)
    for hook in (False, True):
        y = run(deepep._DeepEPDispatcherImplLowLatency(return_recv_hook=hook, **settings),
                lambda got, rows: (rows * layer.own_factors[:, None, None]).to(torch.bfloat16))
        layer.check_inference(f"low latency, fp8={fp8}, hook={hook}", y, fp8)
layer.end()
