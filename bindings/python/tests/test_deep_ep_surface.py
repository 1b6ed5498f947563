# SPDX-License-Identifier: Apache-2.0
"""Every name that programs written for DeepEP use is there, takes what they give, and is found where they import it."""
import importlib
import inspect
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")

ASYNC = {"previous_event": None, "async_finish": False, "allocate_on_comm_stream": False}
REQUIRED = inspect.Parameter.empty
BUFFER = {
    "__init__": {"group": None, "num_nvl_bytes": 0, "num_rdma_bytes": 0, "low_latency_mode": False,
                 "num_qps_per_rank": 24, "allow_nvlink_for_low_latency_mode": True, "allow_mnnvl": False,
                 "explicitly_destroy": False, "enable_shrink": False, "comm": None},
    "set_num_sms": {"new_num_sms": REQUIRED}, "is_sm90_compiled": {}, "destroy": {}, "capture": {}, "get_comm_stream": {},
    "get_dispatch_config": {"num_ranks": REQUIRED}, "get_combine_config": {"num_ranks": REQUIRED},
    "get_low_latency_rdma_size_hint": dict.fromkeys(
        ["num_max_dispatch_tokens_per_rank", "hidden", "num_ranks", "num_experts"], REQUIRED),
    "get_dispatch_layout": {"topk_idx": REQUIRED, "num_experts": REQUIRED, **ASYNC},
    "dispatch": {"x": REQUIRED, "handle": None, "num_tokens_per_rank": None, "num_tokens_per_rdma_rank": None,
                 "is_token_in_rank": None, "num_tokens_per_expert": None, "topk_idx": None, "topk_weights": None,
                 "expert_alignment": 1, "num_worst_tokens": 0, "config": None, **ASYNC},
    "combine": {"x": REQUIRED, "handle": REQUIRED, "topk_weights": None, "bias": None, "config": None, **ASYNC},
    "low_latency_dispatch": {
        **dict.fromkeys(["x", "topk_idx", "num_max_dispatch_tokens_per_rank", "num_experts"], REQUIRED),
        "cumulative_local_expert_recv_stats": None, "dispatch_wait_recv_cost_stats": None, "use_fp8": True,
        "round_scale": False, "use_ue8m0": False, "async_finish": False, "return_recv_hook": False, "use_nvfp4": False,
        "x_global_scale": None},
    "low_latency_combine": {
        **dict.fromkeys(["x", "topk_idx", "topk_weights", "handle"], REQUIRED), "use_logfmt": False, "zero_copy": False,
        "async_finish": False, "return_recv_hook": False, "out": None, "combine_wait_recv_cost_stats": None},
    "clean_low_latency_buffer": dict.fromkeys(["num_max_dispatch_tokens_per_rank", "hidden", "num_experts"], REQUIRED),
    "low_latency_update_mask_buffer": {"rank_to_mask": REQUIRED, "mask": False},
    "low_latency_query_mask_buffer": {"mask_status": REQUIRED}, "low_latency_clean_mask_buffer": {},
    "get_local_buffer_tensor": {"dtype": REQUIRED, "size": None, "offset": 0, "use_rdma_buffer": False},
    "get_next_low_latency_combine_buffer": {"handle": REQUIRED},
}
STATIC = {"set_num_sms", "is_sm90_compiled", "capture", "get_dispatch_config", "get_combine_config",
          "get_low_latency_rdma_size_hint"}


@pytest.mark.parametrize("name", BUFFER)
def test_buffer_has(name):
    expected = BUFFER[name]
    parameters = inspect.signature(getattr(deep_ep.Buffer, name)).parameters.values()
    named = {p.name: p.default for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD}
    assert list(named.items()) == list(expected.items())
    assert isinstance(vars(deep_ep.Buffer)[name], staticmethod) == (name in STATIC)


def test_attributes(buffers):
    def rank_main(buffer):
        assert (buffer.rank, buffer.group_size) == (buffer.group.Get_rank(), 2)
        assert (buffer.num_nvl_bytes, buffer.num_rdma_bytes, buffer.low_latency_mode) == (4096, 2048, False)
        assert buffer.get_local_buffer_tensor(torch.int32).zero_().shape == (1024,)
        assert buffer.get_local_buffer_tensor(torch.int16, torch.Size((3, 5)), use_rdma_buffer=True).shape == (3, 5)
        assert buffer.get_comm_stream() is not None
    buffers(2, rank_main, num_nvl_bytes=4096, num_rdma_bytes=2048)
    assert deep_ep.Buffer.num_sms == 20


def test_names_at_their_paths():
    for path, names in {"deep_ep": ["Buffer", "Config", "topk_idx_t"], "deep_ep.utils": ["EventHandle", "EventOverlap"],
                        "deep_ep_cpp": ["EventHandle", "Config"]}.items():
        module = importlib.import_module(path)
        assert all(hasattr(module, name) for name in names)
    assert deep_ep.topk_idx_t == torch.int64


def test_a_deep_ep_of_the_user_is_found_first(tmp_path):
    """The extra puts its folder at the end of sys.path."""
    (tmp_path / "deep_ep.py").write_text("mine = True")
    found = subprocess.run([sys.executable, "-c", "import deep_ep; print(deep_ep.mine)"], capture_output=True, text=True,
                           env={"PYTHONPATH": str(tmp_path)})
    assert found.stdout.strip() == "True", found.stderr
