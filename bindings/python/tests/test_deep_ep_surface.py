# SPDX-License-Identifier: Apache-2.0
"""Every name that programs written for DeepEP use is there, takes what they give, and is found where they import it."""
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")

ASYNC = {"previous_event": None, "async_finish": False, "allocate_on_comm_stream": False}
REQUIRED = inspect.Parameter.empty
BUFFER = {
    "__init__": {"group": None, "num_nvl_bytes": 0, "num_rdma_bytes": 0, "low_latency_mode": False,
                 "num_qps_per_rank": 24, "allow_nvlink_for_low_latency_mode": True, "allow_mnnvl": False,
                 "explicitly_destroy": False, "enable_shrink": False, "comm": None, "use_fabric": False},
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
    "barrier": {"use_comm_stream": True, "with_cpu_sync": False, "sequential": True},
    "capture": {}, "get_comm_stream": {}, "get_physical_domain_size": {}, "get_logical_domain_size": {}, "destroy": {},
}
EP_ASYNC = {name: default for name, default in ELASTIC_ASYNC.items() if name != "previous_event_before_epilogue"}
EP = {
    "__init__": {"group": REQUIRED, "num_bytes": None, "num_max_tokens_per_rank": 0, "hidden": 0, "num_topk": 0,
                 "use_fp8_dispatch": False, "lb_allocation_plan_or_num_bytes": 0, "deterministic": False,
                 "allow_hybrid_mode": True, "allow_multiple_reduction": True, "prefer_overlap_with_compute": True,
                 "sl_idx": None, "num_allocated_qps": 0, "num_cpu_timeout_secs": 300, "num_gpu_timeout_secs": 100,
                 "explicitly_destroy": False, "comm": None},
    "dispatch": {**{name: default for name, default in ELASTIC["dispatch"].items() if name != "previous_event_before_epilogue"},
                 "do_handle_copy": False, "defer_epilogue": False},
    "combine": {"x": REQUIRED, "handle": REQUIRED, "topk_weights": None, "bias": None, "num_sms": 0, "num_qps": 0, **EP_ASYNC,
                "defer_epilogue": False},
    "get_theoretical_num_sms": {"num_experts": REQUIRED, "num_topk": REQUIRED, "num_scaleout_topk": 0, "rdma_gbs": 0,
                                "nvlink_gbs": 0, "sm_read_gbs": 0, "sm_write_gbs": 0},
    "barrier": {"wait_comm_stream": True, "with_cpu_sync": False, "sequential": True, "context_idx": None},
    **{name: ELASTIC[name] for name in ("get_buffer_size_hint", "get_theoretical_num_qps", "capture", "get_comm_stream",
                                        "get_physical_domain_size", "get_logical_domain_size", "destroy")},
    "print_memory_usage": {},
}
ROUTES = ["topk_idx", "topk_weights", "num_of_experts", "probs", "routing_map"]
HYBRID = {
    "__init__": {
        **dict.fromkeys(["group", "hidden_dim", "max_num_of_tokens_per_rank", "num_local_experts"], REQUIRED), "use_fp8": False,
        **dict.fromkeys(["num_sms_dispatch_api", "num_sms_combine_api", "num_sms_preprocessing_api", "num_blocks_permute",
                         "num_blocks_unpermute"]),
        "load_cached_kernels": False, "use_shared_buffer": True, "enable_custom_allgather": True,
        "num_of_hybrid_ep_ranks_per_nvlink_domain": None, "use_mnnvl": None, "comm": None},
    "dispatch": {"hidden": REQUIRED, "scaling_factor": None, **dict.fromkeys(ROUTES), "num_dispatched_tokens_tensor": None,
                 "num_dispatched_tokens": None, "handle": None},
    "combine": {"hidden": REQUIRED, "probs": None, "handle": None},
    "dispatch_with_permute": {
        "hidden": REQUIRED, "topk_idx": None, "topk_weights": None, "num_of_experts_per_rank": None, "num_of_experts": None,
        "use_fp8": None, "routing_map": None, "probs": None, "scaling_factor": None, "num_permuted_tokens": None,
        "pad_multiple": None, "handle": None, "non_blocking": False, "fuse_permute_dispatch": False,
        "num_dispatched_tokens": None, "use_host_meta": None},
    "combine_with_unpermute": {"hidden": REQUIRED, "probs": None, "handle": None, "pad_multiple": None,
                               "num_dispatched_tokens": None, "fuse_unpermute_combine": False},
    "update_template_config": {
        **dict.fromkeys(["hidden_dim", "num_of_tokens_per_rank", "num_local_experts", "pad_multiple", "use_fp8"]),
        "fuse_permute_dispatch": False, "max_num_of_tokens_per_rank": None},
    "empty_jit_cache": {}, "destroy": {},
}
CLASSES = {deep_ep.Buffer: BUFFER, deep_ep.ElasticBuffer: ELASTIC, deep_ep.EPBuffer: EP, deep_ep.HybridEPBuffer: HYBRID}
RANKS = ["num_scaleout_ranks", "num_scaleup_ranks", "scaleout_rank_idx", "scaleup_rank_idx", "num_rdma_ranks", "num_nvlink_ranks"]
EP_HANDLE = ["do_expand", "num_experts", "expert_alignment", "num_max_tokens_per_rank", "num_sms", "topk_idx", "num_recv_tokens",
             "num_expanded_tokens", "num_recv_tokens_per_expert_list", "psum_num_recv_tokens_per_scaleup_rank",
             "psum_num_recv_tokens_per_expert", "num_unaligned_recv_tokens_per_expert", "recv_src_metadata",
             "dst_buffer_slot_idx", "token_metadata_at_forward", "channel_linked_list"]
# What there is by name alone: a call says why.
OUTSIDE = ["engram_write", "engram_fetch", "get_engram_storage_size_hint", "pp_set_config", "pp_send", "pp_recv",
           "get_pp_buffer_size_hint", "create_agrs_session", "destroy_agrs_session", "agrs_new_session", "all_gather",
           "get_agrs_num_max_session_bytes", "get_agrs_buffer_size_hint"]
EP_OUTSIDE = ["lb_get_theoretical_num_sms", "lb_prefetch_weights", "lb_reduce_grads"]
OTHERS = {"EngramBuffer": ["get_storage_size_hint", "get_theoretical_config", "set_config", "write", "fetch"],
          "BucketBuffer": ["get_theoretical_num_sms", "session", "barrier", "all_gather", "all_reduce", "reduce_scatter"],
          "BucketSession": [], "PPBuffer": ["send", "recv"], "BufferAllocator": []}
STATIC = {"get_buffer_size_hint", "set_num_sms", "is_sm90_compiled", "capture", "get_dispatch_config", "get_combine_config",
          "get_low_latency_rdma_size_hint"}


@pytest.mark.parametrize("cls, name", [(cls, name) for cls, members in CLASSES.items() for name in members])
def test_members(cls, name):
    """Names of arguments, their order and their defaults."""
    parameters = inspect.signature(getattr(cls, name)).parameters.values()
    named = {p.name: p.default for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD}
    assert list(named.items()) == list(CLASSES[cls][name].items())
    assert isinstance(inspect.getattr_static(cls, name), staticmethod) == (name in STATIC)


@pytest.mark.parametrize("cls", CLASSES)
def test_arguments_of_forks_raise_by_name(cls):
    for name in ("dispatch", "combine", "__init__"):
        with pytest.raises(TypeError, match="no_such_argument"):
            getattr(cls, name)(object.__new__(cls), no_such_argument=1)


def test_config_and_events():
    names = ["num_sms", "num_max_nvl_chunked_send_tokens", "num_max_nvl_chunked_recv_tokens",
             "num_max_rdma_chunked_send_tokens", "num_max_rdma_chunked_recv_tokens"]
    config = deep_ep.Config(24, 8, 512, 16, 128)
    assert [getattr(config, name) for name in names] == [24, 8, 512, 16, 128]
    assert list(inspect.signature(deep_ep.Config).parameters) == names
    assert config.get_nvl_buffer_size_hint(hidden_bytes=1024, num_ranks=4) == 12 * 4 * 512 * 1024
    assert config.get_rdma_buffer_size_hint(hidden_bytes=1024, num_ranks=4) == 0
    for ranks in (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160):
        assert deep_ep.Buffer.get_dispatch_config(ranks).num_sms == deep_ep.Buffer.num_sms
        assert deep_ep.Buffer.get_combine_config(ranks).num_sms == deep_ep.Buffer.num_sms
    with deep_ep.EventOverlap(deep_ep.EventHandle()) as event:
        event.current_stream_wait()
    assert deep_ep.EventOverlap(extra_tensors=(1,)).extra_tensors == (1,)
    assert isinstance(deep_ep.Buffer.capture(), deep_ep.EventOverlap)


def test_events_call_a_hook_and_are_released():
    event = deep_ep.EventOverlap(deep_ep.EventHandle(), (1,))
    calls = []
    event.register_hook_after_wait(lambda: calls.append("hook") or "result")
    with pytest.raises(RuntimeError, match="a hook is registered already"):
        event.register_hook_after_wait(print)
    assert event.current_stream_wait() == "result" and event.wait() is None and calls == ["hook"]
    event.register_hook_after_wait(lambda: calls.append("again"))
    with event(release_handle=True) as same:
        assert same is event
    assert calls == ["hook", "again"] and event.event is event.extra_tensors is None
    with event:
        pass  # nothing to wait for
    with pytest.raises(RuntimeError, match="the event cannot be waited for"):
        event.current_stream_wait()


def elastic(mpi):
    return deep_ep.ElasticBuffer(None, num_max_tokens_per_rank=8, hidden=64, comm=mpi, explicitly_destroy=True)


def ep(mpi):
    return deep_ep.EPBuffer(None, num_max_tokens_per_rank=8, hidden=64, comm=mpi, explicitly_destroy=True)


@pytest.mark.parametrize("make", [elastic, ep])
def test_elastic_handles_have(buffers, make):
    def rank_main(buffer):
        assert [getattr(buffer, name) for name in RANKS] == [1, 2, 0, buffer.rank_idx, 1, 2]
        x = torch.ones(2, 64, dtype=torch.bfloat16, device=buffer._streams.device)
        ids = torch.tensor([[0, 1], [2, 3]], device=x.device)
        *_, handle, _ = buffer.dispatch(x, ids, num_experts=4)
        missing = [name for name in EP_HANDLE if not hasattr(handle, name)]
        assert not missing
        assert [name for name in EP_HANDLE if getattr(handle, name) is None] == EP_HANDLE[-2:]
        assert (handle.num_recv_tokens, handle.num_expanded_tokens) == (2, 4)
    buffers(2, rank_main, make=make)


def test_an_epilogue_that_is_deferred(buffers):
    def rank_main(buffer):
        x = torch.ones(2, 64, dtype=torch.bfloat16, device=buffer._streams.device)
        ids = torch.tensor([[0, 1], [2, 3]], device=x.device)
        later = dict(defer_epilogue=True, async_with_compute_stream=True)
        got, got_ids, got_weights, handle = buffer.dispatch(x, ids, num_experts=4, **later).current_stream_wait()
        assert got_ids.tolist() == [[0, 1]] * 2 and got_weights is None
        combined, weights = buffer.combine(got, handle, **later).wait()
        assert torch.equal(combined, x) and weights is None
        with pytest.raises(ValueError, match="needs async_with_compute_stream=True"):
            buffer.combine(got, handle, defer_epilogue=True)
    buffers(2, rank_main, make=ep)


@pytest.mark.parametrize("make, names", [(elastic, OUTSIDE), (ep, EP_OUTSIDE)])
def test_what_elastic_buffers_refuse(buffers, make, names):
    def rank_main(buffer):
        for name in names:
            with pytest.raises(NotImplementedError, match=f"{name}: libucclep moves rows between tokens and experts"):
                getattr(buffer, name)(1, key=2)
        if make is ep:
            with pytest.raises(NotImplementedError, match="lb_allocation_plan_or_num_bytes"):
                deep_ep.EPBuffer(None, lb_allocation_plan_or_num_bytes=1)
    buffers(1, rank_main, make=make)


@pytest.mark.parametrize("name", OTHERS)
def test_classes_that_are_there_by_name(name):
    methods = {method: getattr(getattr(deep_ep, name), method) for method in OTHERS[name]}
    for what, call in {name: getattr(deep_ep, name), **methods}.items():
        with pytest.raises(NotImplementedError, match=f"{what}: libucclep moves rows between tokens and experts; it has no"):
            call(1, key=2)


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
    "x of another kind": (TypeError, "x is a str, expected a tensor", lambda b, x, ids, w, h: b.dispatch("x", topk_idx=ids)),
    "no alignment": (ValueError, "expert_alignment is 0, expected at least 1",
                     lambda b, x, ids, w, h: b.dispatch(x, topk_idx=ids, expert_alignment=0)),
    "three biases": (ValueError, "bias has 3 tensors", lambda b, x, ids, w, h: b.combine(x, h, bias=(x, x, x))),
    "no counts": (ValueError, "num_tokens_per_expert of get_dispatch_layout",
                  lambda b, x, ids, w, h: b.dispatch(x, topk_idx=ids)),
    "handle and topk_idx": (ValueError, "not both", lambda b, x, ids, w, h: b.dispatch(x, handle=h, topk_idx=ids)),
    "nowhere to go": (ValueError, "needs topk_idx, or is_token_in_rank, or a handle",
                      lambda b, x, ids, w, h: b.dispatch(x, num_tokens_per_expert=ids.new_zeros(4))),
    "odd SMs": (ValueError, "expected an even number", lambda b, x, ids, w, h: b.set_num_sms(21)),
    "an argument that there is not": (TypeError, "has no argument no_such",
                                      lambda b, x, ids, w, h: b.low_latency_combine(x, ids, w, None, no_such=1)),
    **{name: (NotImplementedError, f"{name}: combine does not wait for signals",
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
        with pytest.raises(RuntimeError, match="the event cannot be waited for"):
            event.current_stream_wait()
    buffers(1, rank_main)


def test_attributes(buffers):
    def rank_main(buffer):
        assert (buffer.rank, buffer.group_size) == (buffer.group.Get_rank(), 2)
        assert (buffer.num_nvl_bytes, buffer.num_rdma_bytes, buffer.low_latency_mode) == (4096, 2048, False)
        assert buffer.get_local_buffer_tensor(torch.int32).zero_().shape == (1024,)
        assert buffer.get_local_buffer_tensor(torch.int16, torch.Size((3, 5)), use_rdma_buffer=True).shape == (3, 5)
        assert buffer.get_comm_stream() is not None
    buffers(2, rank_main, num_nvl_bytes=4096, num_rdma_bytes=2048)
    assert deep_ep.Buffer.num_sms == 20


NAMES = {
    "deep_ep": ["Buffer", "BucketBuffer", "BufferBase", "Config", "ElasticBuffer", "EPBuffer", "EPHandle", "EventHandle",
                "EventOverlap", "HybridEPBuffer", "comm", "destroy_all_managed_nccl_comm", "get_logical_domain_size",
                "get_num_allocation_alignment", "get_num_rdma_alignment", "get_num_tma_alignment",
                "get_physical_domain_size", "topk_idx_t", "utils"],
    "deep_ep.buffer": ["Buffer", "EventOverlap"],
    "deep_ep.buffers.allocator": ["BufferAllocator"], "deep_ep.buffers.base": ["BufferBase"],
    "deep_ep.buffers.bucket": ["BucketBuffer", "BucketSession"], "deep_ep.buffers.elastic": ["ElasticBuffer", "EPHandle"],
    "deep_ep.buffers.engram": ["EngramBuffer"], "deep_ep.buffers.ep": ["EPBuffer", "EPHandle"],
    "deep_ep.buffers.legacy": ["Buffer"], "deep_ep.buffers.pp": ["PPBuffer"],
    "deep_ep.comm": ["NCCLCommHandle", "barrier", "get_comm_stream", "get_nccl_comm_handle", "get_physical_domain_size"],
    "deep_ep.comm.barrier": ["barrier"], "deep_ep.comm.stream": ["get_comm_stream"],
    "deep_ep.comm.handle": ["NCCLCommHandle", "destroy_all_managed_nccl_comm", "get_logical_domain_size", "get_nccl_comm_handle",
                            "get_physical_domain_size"],
    "deep_ep.hybrid_ep_buffer": ["HybridEPBuffer", "indices_to_map"],
    "deep_ep.utils": ["EventHandle", "EventOverlap", "check_nvlink_connections", "comm", "envs", "event", "math", "semantic"],
    "deep_ep.utils.event": ["EventHandle", "EventOverlap"],
    "deep_ep.utils.comm": ["get_nccl_comm_handle"],
    "deep_ep.utils.envs": ["EnvOverride", "check_fast_rdma_atomic_support", "check_nvlink_connections",
                           "check_torch_deterministic", "dist_print", "get_global_seed", "get_local_seed",
                           "get_logical_domain_size", "get_nvlink_gbs", "get_physical_domain_size", "get_rdma_gbs",
                           "get_sm_read_gbs", "get_sm_write_gbs", "init_dist", "init_seed"],
    "deep_ep.utils.gate": ["get_precise_unbalanced_scores", "get_random_unbalanced_scores", "get_unbalanced_scores"],
    "deep_ep.utils.math": ["align", "calc_diff", "ceil_div", "count_bytes", "create_grouped_scores", "hash_tensor",
                           "hash_tensors", "inplace_unique", "per_token_cast_back", "per_token_cast_to_fp8", "safe_div"],
    "deep_ep.utils.refs": ["combine", "dispatch", "generate_pre_combine_data", "ordered_accumulate"],
    "deep_ep.utils.semantic": ["value_or", "weak_lru"],
    "deep_ep.utils.testing": ["bench", "bench_kineto", "empty_suppress", "flush_l2_cache", "parse_num_bytes",
                              "suppress_stdout_stderr"],
    "deep_ep._C": ["Config", "EventHandle", "get_elastic_buffer_alignment", "get_ep_buffer_alignment",
                   "get_low_latency_rdma_size_hint", "is_sm90_compiled", "topk_idx_t"],
    "deep_ep_cpp": ["EventHandle", "Config", "topk_idx_t"],
}


@pytest.mark.parametrize("path", NAMES)
def test_names_at_their_paths(path):
    module = importlib.import_module(path)
    assert [name for name in NAMES[path] if not hasattr(module, name)] == []
    assert not hasattr(module, "topk_idx_t") or module.topk_idx_t == torch.int64


def test_everything_public_says_what_it_is():
    things = {f"{path}.{name}": getattr(importlib.import_module(path), name) for path, names in NAMES.items() for name in names}
    ours = {name: thing for name, thing in things.items() if getattr(thing, "__module__", "").startswith("deep_ep")}
    members = {f"{name}.{member}": value for name, thing in ours.items() if inspect.isclass(thing)
               for member, value in inspect.getmembers(thing) if not member.startswith("_")}
    called = {name: thing for name, thing in {**ours, **members}.items() if callable(thing) or isinstance(thing, property)}
    assert len(called) > 100 and [name for name, thing in called.items() if not thing.__doc__] == []


def test_functions_of_any_buffer(buffers):
    def rank_main(buffer):
        deep_ep.comm.barrier(buffer)
        assert deep_ep.get_logical_domain_size(buffer) == deep_ep.get_physical_domain_size(buffer) == (1, 2)
        assert deep_ep.comm.get_comm_stream(buffer) is buffer.get_comm_stream()
        with pytest.raises(NotImplementedError, match="libucclep uses no NCCL"):
            deep_ep.comm.get_nccl_comm_handle(None)
    buffers(2, rank_main, make=ep)


def test_a_deep_ep_of_the_user_is_found_first(tmp_path):
    """The extra puts its folder at the end of sys.path."""
    (tmp_path / "deep_ep.py").write_text("mine = True")
    found = subprocess.run([sys.executable, "-c", "import deep_ep; print(deep_ep.mine)"], capture_output=True, text=True,
                           env={"PYTHONPATH": str(tmp_path)})
    assert found.stdout.strip() == "True", found.stderr


def test_the_package_is_typed():
    """Every argument of every public function has a type."""
    assert (Path(deep_ep.__file__).parent / "py.typed").is_file()
    functions = [getattr(cls, name) for cls in CLASSES for name in dir(cls) if not name.startswith("_")]
    modules = [importlib.import_module(path) for path in NAMES]
    functions += [getattr(module, name) for module, names in zip(modules, NAMES.values()) for name in names]
    untyped = [f"{function.__module__}.{function.__qualname__} {p.name}"
               for function in functions if inspect.isfunction(function) and function.__module__.startswith("deep_ep")
               for p in inspect.signature(function).parameters.values() if p.annotation is p.empty and p.name != "self"]
    assert untyped == []
