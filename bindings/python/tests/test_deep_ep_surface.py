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
HINTS = {"num_max_tokens_per_rank": REQUIRED, "hidden": REQUIRED, "num_topk": 0, "use_fp8_dispatch": False,
         "allow_hybrid_mode": True, "allow_multiple_reduction": True}
ELASTIC_ASYNC = {"previous_event": None, "previous_event_before_epilogue": None, "async_with_compute_stream": False,
                 "allocate_on_comm_stream": False}
ELASTIC = {
    "__init__": {"group": REQUIRED, "num_bytes": None, "num_cpu_bytes": 0, "num_max_tokens_per_rank": 0, "hidden": 0,
                 "num_topk": 0, "use_fp8_dispatch": False, "deterministic": False, "allow_hybrid_mode": True,
                 "allow_multiple_reduction": True, "prefer_overlap_with_compute": True, "sl_idx": 3,
                 "num_allocated_qps": 0, "num_cpu_timeout_secs": 300, "num_gpu_timeout_secs": 100,
                 "explicitly_destroy": False, "comm": None},
    "dispatch": {"x": REQUIRED, "topk_idx": None, "topk_weights": None, "cumulative_local_expert_recv_stats": None,
                 "num_experts": None, "num_max_tokens_per_rank": None, "expert_alignment": None, "num_sms": 0, "num_qps": 0,
                 **ELASTIC_ASYNC, "handle": None, "do_handle_copy": True, "do_cpu_sync": None, "do_expand": False,
                 "do_zero_padding": False, "use_tma_aligned_col_major_sf": False},
    "combine": {"x": REQUIRED, "handle": REQUIRED, "topk_weights": None, "bias": None, "num_sms": 0, "num_qps": 0,
                **ELASTIC_ASYNC},
    "get_buffer_size_hint": {"group": REQUIRED, **HINTS},
    "get_theoretical_num_sms": {"num_experts": REQUIRED, "num_topk": REQUIRED},
    "get_theoretical_num_qps": {"num_sms": REQUIRED},
    "barrier": {"use_comm_stream": True, "with_cpu_sync": False},
    "capture": {}, "get_comm_stream": {}, "get_physical_domain_size": {}, "get_logical_domain_size": {}, "destroy": {},
}
EP_HANDLE = ["do_expand", "num_experts", "expert_alignment", "num_max_tokens_per_rank", "num_sms", "topk_idx", "num_recv_tokens",
             "num_expanded_tokens", "num_recv_tokens_per_expert_list", "psum_num_recv_tokens_per_scaleup_rank",
             "psum_num_recv_tokens_per_expert", "num_unaligned_recv_tokens_per_expert", "recv_src_metadata",
             "dst_buffer_slot_idx", "token_metadata_at_forward", "channel_linked_list"]
# What there is by name alone: a call says why.
OUTSIDE = ["engram_write", "engram_fetch", "pp_set_config", "pp_send", "pp_recv", "create_agrs_session", "destroy_agrs_session",
           "agrs_new_session", "all_gather"]
STATIC = {"get_buffer_size_hint", "set_num_sms", "is_sm90_compiled", "capture", "get_dispatch_config", "get_combine_config",
          "get_low_latency_rdma_size_hint"}


@pytest.mark.parametrize("cls, name", [*((deep_ep.Buffer, name) for name in BUFFER),
                                       *((deep_ep.ElasticBuffer, name) for name in ELASTIC)])
def test_members(cls, name):
    """Names of arguments, their order and their defaults."""
    expected = (BUFFER if cls is deep_ep.Buffer else ELASTIC)[name]
    parameters = inspect.signature(getattr(cls, name)).parameters.values()
    named = {p.name: p.default for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD}
    assert list(named.items()) == list(expected.items())
    assert isinstance(vars(cls)[name], staticmethod) == (name in STATIC)


def test_config_and_events():
    names = ["num_sms", "num_max_nvl_chunked_send_tokens", "num_max_nvl_chunked_recv_tokens",
             "num_max_rdma_chunked_send_tokens", "num_max_rdma_chunked_recv_tokens"]
    config = deep_ep.Config(24, 8, 512, 16, 128)
    assert [getattr(config, name) for name in names] == [24, 8, 512, 16, 128]
    assert list(inspect.signature(deep_ep.Config).parameters) == names
    assert config.get_nvl_buffer_size_hint(hidden_bytes=1024, num_ranks=4) == 4 * 1024 * 8192
    assert config.get_rdma_buffer_size_hint(hidden_bytes=1024, num_ranks=4) == 0
    for ranks in (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160):
        assert deep_ep.Buffer.get_dispatch_config(ranks).num_sms == deep_ep.Buffer.num_sms
        assert deep_ep.Buffer.get_combine_config(ranks).num_sms == deep_ep.Buffer.num_sms
    with deep_ep.EventOverlap(deep_ep.EventHandle()) as event:
        event.current_stream_wait()
    assert deep_ep.EventOverlap(extra_tensors=(1,)).extra_tensors == (1,)
    assert isinstance(deep_ep.Buffer.capture(), deep_ep.EventOverlap)


def elastic(mpi):
    return deep_ep.ElasticBuffer(None, num_max_tokens_per_rank=8, hidden=64, comm=mpi, explicitly_destroy=True)


def test_elastic_handles_have(buffers):
    def rank_main(buffer):
        x = torch.ones(2, 64, dtype=torch.bfloat16, device=buffer._streams.device)
        ids = torch.tensor([[0, 1], [2, 3]], device=x.device)
        *_, handle, _ = buffer.dispatch(x, ids, num_experts=4)
        missing = [name for name in EP_HANDLE if not hasattr(handle, name)]
        assert not missing
        assert [name for name in EP_HANDLE if getattr(handle, name) is None] == ["num_expanded_tokens", *EP_HANDLE[-3:]]
    buffers(2, rank_main, make=elastic)


def test_what_elastic_buffers_refuse(buffers):
    def rank_main(buffer):
        for name in OUTSIDE:
            with pytest.raises(NotImplementedError, match=f"{name}: libucclep moves rows between tokens and experts"):
                getattr(buffer, name)(1, key=2)
    buffers(1, rank_main, make=elastic)


# What is refused, by whom, and the reason that the caller reads.
REFUSED = {
    "use_nvfp4": (NotImplementedError, "quantises to fp8 only",
                  lambda b, x, ids, w, h: b.low_latency_dispatch(x, ids, 4, 4, use_nvfp4=True)),
    "x_global_scale": (NotImplementedError, "quantises to fp8 only",
                       lambda b, x, ids, w, h: b.low_latency_dispatch(x, ids, 4, 4, x_global_scale=x)),
    "use_ue8m0 alone": (ValueError, "needs round_scale",
                        lambda b, x, ids, w, h: b.low_latency_dispatch(x, ids, 4, 4, use_ue8m0=True)),
    "three parts of x": (NotImplementedError, "NVFP4 rows with a global scale",
                         lambda b, x, ids, w, h: b.dispatch((x, x, x), topk_idx=ids)),
    "no counts": (ValueError, "num_tokens_per_expert of get_dispatch_layout",
                  lambda b, x, ids, w, h: b.dispatch(x, topk_idx=ids)),
    "handle and topk_idx": (ValueError, "not both", lambda b, x, ids, w, h: b.dispatch(x, handle=h, topk_idx=ids)),
    "a mask of the caller's": (NotImplementedError, "is_token_in_rank that get_dispatch_layout returned",
                               lambda b, x, ids, w, h: b.dispatch(x, num_tokens_per_expert=ids.new_zeros(4),
                                                                  is_token_in_rank=ids.new_zeros((2, 1)).bool())),
    "bias and weights": (NotImplementedError, "bias or topk_weights", lambda b, x, ids, w, h: b.combine(x, h, w, bias=x)),
    "odd SMs": (ValueError, "expected an even one", lambda b, x, ids, w, h: b.set_num_sms(21)),
    "an argument that there is not": (TypeError, "has no argument no_such",
                                      lambda b, x, ids, w, h: b.low_latency_combine(x, ids, w, None, no_such=1)),
    **{name: (NotImplementedError, f"{name}: combine does not follow signals",
              lambda b, x, ids, w, h, name=name: b.low_latency_combine(x, ids, w, None, **{name: 1}))
       for name in ("overlap", "packed_recv_count", "comp_signal", "block_m", "threshold", "num_sms", "src_signals",
                    "src_signal_expect_value")},
}


def test_what_buffers_refuse(buffers):
    def rank_main(buffer):
        x = torch.ones(2, 128, dtype=torch.bfloat16, device=buffer._streams.device)
        ids, w = torch.tensor([[0, 1], [2, 3]], device=x.device), torch.ones(2, 2, device=x.device)
        _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, 4)
        *_, handle, _ = buffer.dispatch(x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids,
                                        topk_weights=w)
        for what, (error, reason, call) in REFUSED.items():
            with pytest.raises(error, match=reason):
                call(buffer, x, ids, w, handle)
                pytest.fail(f"{what} was not refused")
        *_, event, hook = buffer.low_latency_dispatch(x, ids, 4, 4, use_fp8=False, return_recv_hook=False)
        assert hook is None and event.event is None
        with pytest.raises(RuntimeError, match="there is no event"):
            event.current_stream_wait()
    buffers(1, rank_main)


def test_hybrid_ep_is_not_there():
    """Megatron-LM asks for it by import, and goes on without it."""
    with pytest.raises(ImportError):
        from deep_ep import HybridEPBuffer  # noqa: F401


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
    for path, names in {"deep_ep": ["Buffer", "Config", "ElasticBuffer", "EPHandle", "EventHandle", "EventOverlap", "topk_idx_t", "utils"],
                        "deep_ep.utils": ["EventHandle", "EventOverlap"], "deep_ep_cpp": ["EventHandle", "Config"]}.items():
        module = importlib.import_module(path)
        assert all(hasattr(module, name) for name in names)
    assert deep_ep.topk_idx_t == torch.int64


def test_a_deep_ep_of_the_user_is_found_first(tmp_path):
    """The extra puts its folder at the end of sys.path."""
    (tmp_path / "deep_ep.py").write_text("mine = True")
    found = subprocess.run([sys.executable, "-c", "import deep_ep; print(deep_ep.mine)"], capture_output=True, text=True,
                           env={"PYTHONPATH": str(tmp_path)})
    assert found.stdout.strip() == "True", found.stderr
