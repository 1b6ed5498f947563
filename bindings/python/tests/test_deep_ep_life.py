# SPDX-License-Identifier: Apache-2.0
"""What buffers of deep_ep hold, for how long, and what happens when a program drops it or stops half-way."""
import gc
import os
import threading
import time
import weakref

import pytest
import ucclep

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")
from moe import EXPERTS, HIDDEN, ROOM, TOKENS, TOP_K, Moe, difference, place  # noqa: E402
from ranks import need_gpus, run_mpi  # noqa: E402


def held():
    """Threads, open files, and mappings of memory that is shared."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        shared = sum(1 for line in maps if line.split()[1].endswith("s"))
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), shared


def use(buffer, moe):
    x, ids, weights = place(moe, buffer)
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
    got, *_, handle, event = buffer.dispatch(x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids,
                                             topk_weights=weights, async_finish=True)
    return got, handle, event, buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, return_recv_hook=True)


@pytest.mark.parametrize("explicitly", [False, True])
def test_what_nobody_holds_is_freed(device, explicitly):
    """Also with operations in flight, whose results are dropped, too."""
    need_gpus(device, 2)
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(mpi):
        if device == "cuda":
            torch.cuda.set_device(mpi.rank)
        use(deep_ep.Buffer(comm=mpi, num_nvl_bytes=2 * 2 * HIDDEN * ROOM, explicitly_destroy=explicitly), moe)

    run_mpi(2, rank_main)
    gc.collect()
    time.sleep(1)
    before = held()
    for _ in range(3):
        run_mpi(2, rank_main)
    gc.collect()
    deadline = time.monotonic() + 60
    while any(now > then for now, then in zip(held(), before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(now <= then for now, then in zip(held(), before)), (held(), before)


@pytest.mark.parametrize("explicitly", [False, True])
def test_events_and_hooks_outlive_their_buffer(device, explicitly):
    """A program may drop or destroy the buffer before it waits; what it holds is filled in."""
    need_gpus(device, 2)
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(mpi):
        if device == "cuda":
            torch.cuda.set_device(mpi.rank)
        buffer = deep_ep.Buffer(comm=mpi, num_nvl_bytes=2 * 2 * HIDDEN * ROOM, explicitly_destroy=explicitly)
        got, handle, event, (rows, counts, _, _, hook) = use(buffer, moe)
        if explicitly:
            hook()
            buffer.destroy()
            for call in (buffer.destroy, buffer.low_latency_dispatch, buffer.get_comm_stream):
                with pytest.raises(ucclep.InvalidArgument, match="does not exist any more"):
                    call()
        comm = buffer._comm
        del buffer
        gc.collect()
        assert comm.alive != explicitly
        event.current_stream_wait()
        if not explicitly:
            assert comm.alive  # for the hook
            hook()
            gc.collect()
        assert not comm.alive
        assert torch.equal(got.cpu(), moe.received(mpi.rank, moe.x))
        assert handle[0][:, mpi.rank].tolist()[-1] == len(got)
        assert counts.tolist() == moe.tokens_per_expert(mpi.rank)
    run_mpi(2, rank_main)


def test_a_destroyed_buffer_holds_no_tensors(buffers):
    """Even while a program holds the buffer."""
    moe = Moe(1, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x, ids, _ = place(moe, buffer)
        handle = buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, use_fp8=False)[2]
        return buffer, weakref.ref(buffer.get_next_low_latency_combine_buffer(handle))
    (buffer, rows), = buffers(1, rank_main)
    gc.collect()
    assert rows() is None and buffer.rank == 0


def test_a_destroyed_buffer_warns_of_its_last_operation(buffers):
    """What nobody has waited for is heard at last."""
    moe = Moe(1, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        buffer.dispatch(x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids, topk_weights=weights,
                        num_worst_tokens=3, async_finish=True)
        kept.append(buffer)
    kept: list = []
    with pytest.warns(RuntimeWarning, match=f"receives {TOKENS} rows and keeps 3"):
        buffers(1, rank_main)
    assert kept[0].num_data_errors == 1


def test_ranks_may_drop_theirs_at_different_times(device):
    need_gpus(device, 2)
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)
    dropped = threading.Event()

    def rank_main(mpi):
        if device == "cuda":
            torch.cuda.set_device(mpi.rank)
        buffer = deep_ep.Buffer(comm=mpi, num_nvl_bytes=2 * 2 * HIDDEN * ROOM)
        got, handle, event, (*_, hook) = use(buffer, moe)
        event.current_stream_wait()
        hook()
        if mpi.rank == 0:
            del buffer, hook
            gc.collect()
            dropped.set()
            with pytest.raises(ucclep.InvalidArgument, match="does not exist any more"):
                handle[-1].data_ptr() and deep_ep.handles.routing_of(handle).core.wait_counts()
        else:
            assert dropped.wait(60)
            time.sleep(0.5)
            assert buffer._comm.async_error() is None
            buffer.destroy()
    run_mpi(2, rank_main)


def test_results_that_are_dropped_before_their_event(buffers):
    """Memory of an operation stays until it has ended, whatever the caller drops."""
    def rank_main(buffer):
        to = buffer._streams.device
        ids = torch.tensor([[t % EXPERTS, (t + 5) % EXPERTS] for t in range(ROOM)], device=to)
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)

        def start(value):
            x = torch.full((ROOM, HIDDEN), value, device=to).to(torch.bfloat16)
            got, *_, handle, _ = buffer.dispatch(x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, topk_idx=ids,
                                                 num_tokens_per_expert=per_expert, async_finish=True)
            return got, handle

        for turn in range(1, 30):
            got, handle = start(float(turn))
            junk = [torch.full((ROOM, HIDDEN), -99.0, device=to).to(torch.bfloat16) for _ in range(3)]
            combined, _, _ = buffer.combine(got, handle)
            assert (got == turn).all() and len(junk) == 3
            assert torch.equal(combined, turn * in_rank.sum(1, keepdim=True).to(torch.bfloat16).expand_as(combined))
            assert handle[0][:, buffer.rank].tolist()[-1] == len(got)  # filled in, though nobody waited for the event
        for turn in range(40):  # more than are kept
            start(float(turn))
    buffers(2, rank_main)


def test_a_layout_asks_no_other_rank(buffers):
    meet = threading.Barrier(2)

    def rank_main(buffer):
        if buffer.rank == 0:
            ids = torch.tensor([[0, 3], [2, -1]], device=buffer._streams.device)
            begin = time.monotonic()
            per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, 4)
            assert time.monotonic() - begin < 5
            assert (per_rank.tolist(), per_expert.tolist()) == ([1, 2], [1, 0, 1, 1])
            assert in_rank.tolist() == [[True, True], [False, True]]
            with pytest.raises(ValueError, match="num_experts is 5, expected a multiple of 2 ranks"):
                buffer.get_dispatch_layout(ids, 5)
        meet.wait(100)
    buffers(2, rank_main)


@pytest.mark.parametrize("masks", [False, True])
def test_hooks_that_are_never_called(buffers, masks):
    """A handle that is needed again is received first. What the caller kept of it is right."""
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K, uneven=False)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        results = []
        for turn in range(1, 6):
            got, counts, handle, _, hook = buffer.low_latency_dispatch(x * turn, ids, TOKENS, EXPERTS, use_fp8=False,
                                                                       return_recv_hook=True)
            results.append((got, counts, handle, hook))
            del got, handle, hook
            if turn % 2:
                results[-1] = None
                gc.collect()
        got, counts, handle, hook = results[1]  # its slot was used again by the fourth
        assert counts.tolist() == moe.tokens_per_expert(buffer.rank)
        expected = torch.cat([moe.x[source][(moe.ids[source] == buffer.rank * moe.local).any(1)] for source in range(2)]) * 2
        assert torch.equal(got[0, :len(expected)].cpu(), expected)
        with pytest.raises(RuntimeError, match="the handle is too old"):
            buffer.low_latency_combine(got, ids, weights, handle)
        *_, stale = results[1]
        got, _, handle, hook = results[3]
        stale()  # is of an operation that has ended: it does not receive the one that has its handle now
        combined, _, _ = buffer.low_latency_combine(got, ids, weights, handle)  # receives the rows
        hook(), hook()
        close = (combined.cpu().float() - 4 * moe.x[buffer.rank].float() * moe.weights[buffer.rank].sum(1, keepdim=True)).abs()
        assert close.max() < 0.3
    buffers(2, rank_main, low_latency_mode=True, enable_shrink=masks)


def test_a_bounded_number_of_shapes_has_memory(buffers):
    def rank_main(buffer):
        x = torch.ones(1, HIDDEN, dtype=torch.bfloat16, device=buffer._streams.device)
        ids, weights = torch.tensor([[buffer.rank, 2]], device=x.device), torch.ones(1, 2, device=x.device)
        first = buffer.low_latency_dispatch(x, ids, 1, 4, use_fp8=False)
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, 4)
        how = dict(num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids)
        got, *_, old, _ = buffer.dispatch(x, **how)
        windows = []
        for turn in range(40):
            rows, _, handle, _, hook = buffer.low_latency_dispatch(x, ids, 2 + turn % 20, 4, use_fp8=False,
                                                                   return_recv_hook=turn % 3 == 0)
            combined, _, _ = buffer.low_latency_combine(rows, ids, weights, handle)
            assert torch.equal(combined, 2 * x)
            assert len(buffer._groups.all()) <= 8
            windows.append(buffer._comm.info()["window_bytes"])
        assert max(windows[20:]) <= max(windows[:20])
        with pytest.raises(RuntimeError, match="of at most 8 shapes"):
            buffer.low_latency_combine(first[0], ids, weights, first[2])
        with pytest.raises(RuntimeError, match="the handle has expired: 8 other shapes were used since"):
            buffer.combine(got, old)
        got, *_, handle, _ = buffer.dispatch(x, **how)  # is made again
        assert torch.equal(buffer.combine(got, handle)[0], 2 * x)
    buffers(2, rank_main, low_latency_mode=True)


@pytest.mark.more  # eight ranks, of which each that fails is waited for
def test_ranks_fail_one_after_the_other(buffers, monkeypatch):
    """At their first dispatch, combine and clean_low_latency_buffer, as in DeepEP's test of shrinking."""
    monkeypatch.delenv("UCCLEP_TIMEOUT_MS", raising=False)
    monkeypatch.setattr(deep_ep.low_latency, "MASK_AFTER_MS", 3000)
    ranks, fails = 8, {"dispatch": 1, "combine": 3, "clean": 5}
    moe = Moe(ranks, TOKENS, HIDDEN, EXPERTS, TOP_K, uneven=False)
    meet = threading.Barrier(ranks)
    hint = deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, ranks, EXPERTS)

    def rank_main(buffer):
        (x, ids, weights), gone = place(moe, buffer), set()
        status = torch.zeros(ranks, dtype=torch.int32, device=x.device)

        def alive(api):
            gone.add(fails[api])
            return buffer.rank not in gone

        def check_masks():
            buffer.low_latency_query_mask_buffer(status)
            assert set(status.nonzero()[:, 0].tolist()) == gone

        def rounds():
            for turn in range(2):
                if not alive("dispatch"):
                    return
                got, counts, handle, _, hook = buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, use_fp8=False,
                                                                           return_recv_hook=True)
                hook()
                check_masks()
                sent = [(moe.ids[source] == buffer.rank * moe.local).any(1).sum().item() for source in range(ranks)]
                assert counts[0].item() == sum(n for source, n in enumerate(sent) if source not in gone)
                if not alive("combine"):
                    return
                combined, _, _ = buffer.low_latency_combine(got, ids, weights, handle)
                check_masks()
                lost = torch.stack([moe.ids[buffer.rank] // moe.local == rank for rank in gone]).any(0)
                left = torch.where(lost, 0.0, moe.weights[buffer.rank])
                assert difference(combined.cpu(), moe.x[buffer.rank].float() * left.sum(1, keepdim=True)) < 1e-5
                if not alive("clean"):
                    return
                buffer.clean_low_latency_buffer(TOKENS, HIDDEN, EXPERTS)
                check_masks()
        rounds()
        meet.wait(100)
    buffers(ranks, rank_main, low_latency_mode=True, enable_shrink=True, num_rdma_bytes=hint)


@pytest.mark.parametrize("known", [True, False])  # by the others, who find out otherwise
def test_a_rank_that_never_dispatches_can_be_masked(buffers, monkeypatch, known):
    """A buffer that knows its shape allocates when it is made."""
    monkeypatch.delenv("UCCLEP_TIMEOUT_MS", raising=False)
    monkeypatch.setattr(deep_ep.low_latency, "MASK_AFTER_MS", 3000)
    ranks, stopped = 4, 2
    moe = Moe(ranks, TOKENS, HIDDEN, EXPERTS, TOP_K)
    meet = threading.Barrier(ranks)
    hint = deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, ranks, EXPERTS)

    def rank_main(buffer):
        status = torch.zeros(ranks, dtype=torch.int32, device=buffer._streams.device)
        if buffer.rank != stopped:
            x, ids, weights = place(moe, buffer)
            if known:
                buffer.low_latency_update_mask_buffer(stopped, True)
            got, counts, handle, _, _ = buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, use_fp8=False)
            first = [(moe.ids[source] == buffer.rank * moe.local).any(1).sum().item() for source in range(ranks)]
            assert counts[0].item() == sum(first) - first[stopped]
            buffer.low_latency_combine(got, ids, weights, handle)
            buffer.low_latency_query_mask_buffer(status)
            assert status.tolist() == [0, 0, 1, 0]
        meet.wait(60)
    buffers(ranks, rank_main, low_latency_mode=True, enable_shrink=True, num_rdma_bytes=hint)
