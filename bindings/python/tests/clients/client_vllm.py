# SPDX-License-Identifier: Apache-2.0
"""vllm.model_executor.layers.fused_moe.prepare_finalize: its three classes over deep_ep."""
import types

import deep_ep
import torch
from layer import EXPERTS, TOP_K, Layer, from_fp8
from stubs import modules

FOLDER = "vllm.model_executor.layers.fused_moe.prepare_finalize."


class TokensMeta:
    def __init__(self, expert_num_tokens, expert_num_tokens_cpu):
        self.expert_num_tokens, self.expert_num_tokens_cpu = expert_num_tokens, expert_num_tokens_cpu

    @classmethod
    def make_from_list(cls, counts, device):
        return cls(torch.tensor(counts), counts)


class AsItIs:
    """The experts have summed already."""

    def apply(self, output, fused_expert_output, **_):
        return fused_expert_output


layer = Layer(hidden=2048, dtype=torch.bfloat16)
ht, ll, v2 = modules(
    "vllm", [FOLDER + name for name in ("deepep_ht", "deepep_ll", "deepep_v2")], ExpertTokensMetadata=TokensMeta,
    envs=types.SimpleNamespace(VLLM_DEEPEPLL_NVFP4_DISPATCH=False), dbo_current_ubatch_id=lambda: 0, dbo_enabled=lambda: False,
    dbo_get_previous_event=lambda _: None, current_platform=types.SimpleNamespace(is_rocm=lambda: False),
    get_forward_context=lambda: types.SimpleNamespace(dp_metadata=None), moe_kernel_quantize_input=lambda x, *_, **__: (x, None),
    TopKWeightAndReduceContiguous=AsItIs)
quant = types.SimpleNamespace(is_block_quantized=False, quant_dtype=None, a1_scale=None, a1_gscale=None, a2_scale=None,
                              block_shape=None, per_act_token_quant=False, is_scale_swizzled=False)
first = layer.rank * layer.local


def prepared(prepare):
    return prepare(layer.x, layer.weights, layer.ids, EXPERTS, None, False, quant)


def finalized(classes, rows, weights, ids, how, asynchronous):
    y = torch.empty_like(layer.x)
    later = classes._finalize(y, rows, weights, ids, False, how, asynchronous)
    for call in later if isinstance(later, tuple) else (later,):
        if callable(call):
            call()
    return y


with torch.inference_mode():
    hint = deep_ep.Buffer.get_low_latency_rdma_size_hint(32, layer.hidden, layer.ranks, EXPERTS)
    buffer = deep_ep.Buffer(layer.group, 1 << 26, hint, low_latency_mode=True, num_qps_per_rank=10, explicitly_destroy=True)
    for asynchronous in (False, True):
        backend = ht.DeepEPHTPrepareAndFinalize(buffer, layer.ranks, layer.ranks, first)
        rows, _, _, ids, weights = prepared(backend.prepare)
        y = finalized(backend, layer.scaled(rows, ids - first, weights), weights, ids, AsItIs(), asynchronous)
        layer.check_inference(f"high throughput, asynchronous={asynchronous}", y)

        for fp8 in (False, True):
            backend = ll.DeepEPLLPrepareAndFinalize(buffer, 32, layer.ranks, use_fp8_dispatch=fp8)
            backend.SUPPORTED_HIDDEN_SIZES = [layer.hidden]
            quant.block_shape = [128, ll.DEEPEP_QUANT_BLOCK_SIZE] if fp8 else None
            rows, scales, *_ = prepared(backend.prepare)
            rows = from_fp8(rows, scales) if fp8 else rows.float()
            y = finalized(backend, (rows * layer.own_factors[:, None, None]).to(torch.bfloat16), layer.weights, layer.ids,
                          AsItIs(), asynchronous)
            layer.check_inference(f"low latency, fp8={fp8}, asynchronous={asynchronous}", y, fp8)
        quant.block_shape = None

    v2._globalize_recv_topk_idx = lambda ids, counts, offset, _: torch.where(
        (ids >= 0) & (torch.arange(len(ids))[:, None] < counts[-1]), ids + offset, -1)  # a kernel of Triton there
    for exact in (False, True):
        elastic = deep_ep.ElasticBuffer(layer.group, num_max_tokens_per_rank=64, hidden=layer.hidden, num_topk=TOP_K,
                                        allow_multiple_reduction=not exact, explicitly_destroy=True)
        for graph in (False, True):
            backend = v2.DeepEPV2PrepareAndFinalize(elastic, layer.ranks, layer.ranks, first, EXPERTS, TOP_K, use_cudagraph=graph)
            rows, _, _, ids, weights = prepared(backend.prepare)
            y = finalized(backend, layer.scaled(rows, ids - first, weights), weights, ids, AsItIs(), False)
            layer.check_inference(f"elastic, exact={exact}, for graphs={graph}", y)
        elastic.destroy()
    buffer.destroy()
layer.end()
