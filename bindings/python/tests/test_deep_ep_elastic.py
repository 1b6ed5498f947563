# SPDX-License-Identifier: Apache-2.0
"""deep_ep.ElasticBuffer."""
import inspect
import itertools

import pytest

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")
from deep_ep import ElasticBuffer, EPHandle  # noqa: E402
from moe import EXPERTS, HIDDEN, NRANKS, TOKENS, TOP_K, Moe, difference, place, to_fp8  # noqa: E402


def elastic(mpi, **settings):
    buffer = ElasticBuffer(None, comm=mpi, **{"num_max_tokens_per_rank": TOKENS, "hidden": HIDDEN, "num_topk": TOP_K, **settings})
    buffer.rank = buffer.rank_idx
    return buffer


def up(count, alignment):
    return -(-count // alignment) * alignment


def expanded(moe, rank, alignment):
    """[(row, source, token, k)] of what a rank receives with do_expand, and the rows in all."""
    rows, begin = [], 0
    for expert in range(moe.local):
        row = begin
        for source in range(moe.nranks):
            for token, k in (moe.ids[source] == rank * moe.local + expert).nonzero().tolist():
                rows.append((row, source, token, k))
                row += 1
        begin += up(row - begin, alignment)
    return rows, begin


def check_counts(moe, rank, handle, alignment):
    counts = moe.tokens_per_expert(rank)
    tokens = torch.tensor([len(tokens) for _, tokens in moe.sources(rank)])
    assert handle.psum_num_recv_tokens_per_scaleup_rank.tolist() == tokens.cumsum(0).tolist()
    assert handle.num_unaligned_recv_tokens_per_expert.tolist() == counts
    ends = torch.tensor([up(count, alignment) for count in counts]).cumsum(0).tolist()
    if handle.do_expand:
        ends = [end - up(count, alignment) + count for end, count in zip(ends, counts)]
    assert handle.psum_num_recv_tokens_per_expert.tolist() == ends
    if handle.num_recv_tokens_per_expert_list:
        assert handle.num_recv_tokens_per_expert_list == [up(count, alignment) for count in counts]


def check_metadata(moe, rank, handle):
    """A line for each received token, with do_expand also the rows of its selections."""
    expected = {(source, token): [-1] * moe.top_k for source, tokens in moe.sources(rank) for token in tokens.tolist()}
    if handle.do_expand:
        for row, source, token, k in expanded(moe, rank, handle.expert_alignment)[0]:
            expected[source, token][k] = row
    lines = [[source * TOKENS + token, i, *rows] for i, ((source, token), rows) in enumerate(expected.items())]
    meta = handle.recv_src_metadata
    assert meta.dtype == torch.int32 and meta[:len(lines)].tolist() == lines and (meta[len(lines):] == -1).all()
    assert not handle.num_recv_tokens_per_expert_list or len(meta) == len(lines)
    handle.recv_src_metadata = meta[:1]
    assert len(handle.recv_src_metadata) == min(1, len(meta))
    handle.recv_src_metadata = meta

    owners = torch.where(moe.ids[rank] >= 0, moe.ids[rank] // moe.local, -1)
    places = [moe.in_rank(rank, peer).cumsum(0) - 1 + rank * TOKENS for peer in range(moe.nranks)]
    slots = [[-1 if owner < 0 else places[owner][token].item() for owner in line] for token, line in enumerate(owners.tolist())]
    assert handle.dst_buffer_slot_idx.tolist() == slots


MODES = list(itertools.product([1, 16], [False, True], [False, True], [True, False]))


@pytest.mark.parametrize("nranks", NRANKS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_c15_c16_dispatch_and_combine(buffers, nranks, asynchronous):
    moe = Moe(nranks, TOKENS, HIDDEN, EXPERTS, TOP_K, seed=nranks + 10, masked=0.05)
    fp8 = [to_fp8(x) for x in moe.x]

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        to = x.device
        how = dict(async_with_compute_stream=asynchronous, allocate_on_comm_stream=asynchronous,
                   previous_event=buffer.capture() if asynchronous else None)

        def wait(event):
            if asynchronous:
                event.current_stream_wait()

        for alignment, use_fp8, expand, cpu_sync in MODES:
            sent = tuple(part.to(to) for part in fp8[r]) if use_fp8 else x
            stats = torch.zeros(moe.local, dtype=torch.int32, device=to)
            columns = expand and alignment > 1
            how_to = dict(do_expand=expand, use_tma_aligned_col_major_sf=columns, expert_alignment=alignment, **how)
            got, got_ids, got_weights, handle, event = buffer.dispatch(
                sent, ids, weights, stats, num_experts=EXPERTS, do_cpu_sync=cpu_sync, **how_to)
            wait(event)
            check_counts(moe, r, handle, alignment)
            assert stats.tolist() == moe.tokens_per_expert(r) and torch.equal(handle.topk_idx, ids)
            parts = [part.cpu() for part in (got if use_fp8 else (got,))]
            sources = [[pair[i] for pair in fp8] if use_fp8 else moe.x for i in range(len(parts))]
            check_metadata(moe, r, handle)
            if expand:
                rows, total = expanded(moe, r, alignment)
                assert got_ids is None and (not cpu_sync or len(parts[0]) == total == handle.num_expanded_tokens)
                used = torch.zeros(len(parts[0]), dtype=torch.bool)
                for row, source, token, k in rows:
                    used[row] = True
                    assert all(torch.equal(part[row], of[source][token]) for part, of in zip(parts, sources))
                    assert got_weights[row].cpu() == moe.weights[source][token, k]
                assert (got_weights.cpu()[~used] == 0).all()
                padding = [part[:total][~used[:total]] for part in parts]
                assert all((part.view(torch.uint8) == 0).all() for part in padding if part.is_contiguous())
                if use_fp8:
                    assert got[1].stride(0) == 1 and got[1].stride(1) % 4 == 0 if columns else got[1].is_contiguous()
                copies = torch.where(moe.ids[r] >= 0, 1, 0).sum(1)
            else:
                count = len(moe.received(r, moe.x))
                assert not cpu_sync or len(parts[0]) == count == handle.num_recv_tokens
                assert all(torch.equal(part[:count], moe.received(r, of)) for part, of in zip(parts, sources))
                assert torch.equal(got_ids[:count].cpu(), moe.received_ids(r)) and (got_ids[count:] == -1).all()
                assert torch.equal(got_weights[:count].cpu(), moe.received_weights(r))
                copies = moe.ranks_of_tokens(r)

            again, again_ids, _, same, event = buffer.dispatch(sent, handle=handle, **how_to)
            wait(event)
            n = handle.psum_num_recv_tokens_per_expert[-1] if expand else len(moe.received(r, moe.x))
            assert same is handle and (expand or torch.equal(again_ids, got_ids))
            assert all(torch.equal(a[:n], b[:n]) for a, b in zip(*((again, got) if use_fp8 else ((again,), (got,)))))

            if not use_fp8:
                for bias in (None, torch.ones_like(x), (torch.ones_like(x), torch.ones_like(x))):
                    combined, none, event = buffer.combine(got, handle, bias=bias, **how)
                    wait(event)
                    added = 0 if bias is None else 1 if torch.is_tensor(bias) else 2
                    expected = moe.x[r].float() * copies[:, None] + added
                    assert none is None and difference(combined.cpu(), expected) < 1e-5
    buffers(nranks, rank_main, make=elastic)


@pytest.mark.parametrize("nodes, expand", [("4", True), ("2,2", True), ("2,2", False)])
def test_one_rounding(buffers, monkeypatch, nodes, expand):
    """allow_multiple_reduction=False, with rows whose sums differ by when they are rounded."""
    monkeypatch.setenv("UCCLEP_NODES", nodes)
    moe = Moe(4, TOKENS, HIDDEN, EXPERTS, TOP_K)
    factors = torch.rand(EXPERTS, generator=torch.Generator().manual_seed(5)) + 0.5

    def made(rows, experts):
        return (rows.float() * factors[experts][:, None]).to(torch.bfloat16)

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        got, got_ids, got_weights, handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS, do_expand=expand)
        per_rank = [torch.where(moe.ids[r] // moe.local == rank, moe.ids[r], EXPERTS).sort(1).values for rank in range(4)]
        exact, rounded, bias = 0.0, 0.0, torch.randn_like(moe.x[r])
        for experts in per_rank:
            of_rank = 0.0
            for e in experts.t():
                row = made(moe.x[r], e.clamp(max=EXPERTS - 1)).float()
                of_rank = of_rank + torch.where((e < EXPERTS)[:, None], row, 0.0)
            exact, rounded = exact + (of_rank if expand else of_rank.bfloat16().float()), rounded + of_rank.bfloat16().float()
        if expand:
            ends = torch.tensor(handle.num_recv_tokens_per_expert_list).cumsum(0)
            y = made(got.cpu(), r * moe.local + torch.bucketize(torch.arange(len(got)), ends, right=True))
        else:
            y = torch.zeros(got.shape)
            for e in range(moe.local):
                of_expert = made(got.cpu(), torch.full((len(got),), r * moe.local + e)).float()
                y += torch.where((got_ids.cpu() == e).any(1)[:, None], of_expert, 0.0)
            y = y.to(torch.bfloat16)
        combined, combined_weights, _ = buffer.combine(y.to(x.device), handle, topk_weights=got_weights, bias=bias.to(x.device))
        assert combined.dtype == torch.bfloat16 and torch.equal(combined_weights.cpu(), moe.weights[r])
        assert torch.equal(combined.cpu(), (exact + bias.float()).to(torch.bfloat16))
        assert not expand or not torch.equal(combined.cpu(), (rounded + bias.float()).to(torch.bfloat16))
    buffers(4, rank_main, make=elastic, allow_multiple_reduction=False)


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("once", [True, False])
def test_rows_that_programs_have_summed(buffers, once, sync):
    """LightLLM sums the rows of a token itself, and says so by do_expand, or by metadata that name one row for a token."""
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=0.2)

    def rank_main(buffer):
        _, ids, weights = place(moe, buffer)
        x = (torch.arange(len(ids), device=ids.device)[:, None] % 5 - 2).bfloat16().repeat(1, HIDDEN)  # whose sums are exact
        got, _, got_weights, handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS, do_expand=True, do_cpu_sync=sync)
        y = got * (1 + torch.arange(len(got), device=ids.device)[:, None] % 3)
        whole, whole_weights, _ = buffer.combine(y, handle, topk_weights=got_weights)
        assert whole.abs().max() > 0 and not torch.equal(whole[:, 0], x[:, 0] * (ids >= 0).sum(1))

        lines, count = handle.recv_src_metadata, handle.psum_num_recv_tokens_per_scaleup_rank[-1].item()
        assert len(lines) == handle.num_recv_tokens == (count if sync else 2 * TOKENS)
        slots = lines[:, 2:].long()
        there = slots >= 0
        tokens = torch.where(there[..., None], y[slots.clamp(min=0)], torch.zeros_like(y[:1])).sum(1)
        token_weights = torch.where(there, got_weights[slots.clamp(min=0)], torch.zeros_like(got_weights[:1]))
        tokens[count:] = float("nan")  # of no token

        def check(rows, of_rows=None):
            combined, combined_weights, _ = buffer.combine(rows, handle, topk_weights=of_rows)
            assert torch.equal(combined, whole) and (of_rows is None or torch.equal(combined_weights, whole_weights))

        handle.do_expand = False
        check(tokens, token_weights)
        with pytest.raises(ValueError, match="expected one for each"):
            buffer.combine(tokens[1:], handle)
        handle.do_expand = True
        check(y, got_weights)

        compact = torch.full_like(lines, -1)
        compact[:, 0], compact[:, 2] = lines[:, 0], torch.arange(len(lines), device=ids.device)
        handle.recv_src_metadata = compact
        check(tokens)
        order = torch.randperm(count, device=ids.device)
        compact[:count] = compact[order]  # lines in another order, in place
        check(tokens)
        handle.recv_src_metadata = lines
        check(y, got_weights)
        lines[:, 2:] = lines[:, 2:].flip(1)
        check(y)
        with pytest.raises(ValueError, match=r"expected \[tokens, 6\]"):
            handle.recv_src_metadata = lines[:, :3]

        got, _, _, handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS, do_cpu_sync=sync)
        whole = buffer.combine(got, handle)[0]
        handle.recv_src_metadata = torch.cat([handle.recv_src_metadata[:count][order], handle.recv_src_metadata[count:]])
        check(torch.cat([got[:count][order], got[count:]]))
        handle.do_expand = True
        with pytest.raises(ValueError, match="the dispatch was made without it"):
            buffer.combine(got, handle)
    buffers(2, rank_main, make=elastic, allow_multiple_reduction=not once)


class Saved(torch.autograd.Function):
    """Tensors that a program saves before it waits for the event which fills them in."""

    @staticmethod
    def forward(ctx, x, event, *tensors):
        ctx.save_for_backward(*tensors)
        event.current_stream_wait()
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, *(None for _ in ctx.saved_tensors)


@pytest.mark.parametrize("expand", [False, True])
def test_tensors_that_are_saved_before_they_are_filled_in(buffers, expand):
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)
    fp8 = [to_fp8(x) for x in moe.x]

    def rank_main(buffer):
        _, ids, weights = place(moe, buffer)
        got, _, _, handle, event = buffer.dispatch(tuple(part.to(ids.device) for part in fp8[buffer.rank]), ids, weights,
                                                   num_experts=EXPERTS, do_expand=expand, async_with_compute_stream=True)
        x = torch.zeros(1, requires_grad=True)
        y = Saved.apply(x, event, *got, handle.psum_num_recv_tokens_per_scaleup_rank, handle.psum_num_recv_tokens_per_expert)
        y.backward()
        check_counts(moe, buffer.rank, handle, 1)
        assert x.grad == 1
    buffers(2, rank_main, make=elastic)


@pytest.mark.parametrize("copy", [True, False])
def test_ids_that_change_after_a_dispatch(buffers, copy):
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x, ids, _ = place(moe, buffer)
        ids = ids.clone()
        got, _, _, handle, _ = buffer.dispatch(x, ids, num_experts=EXPERTS, do_handle_copy=copy)
        ids.zero_()
        if copy:
            assert torch.equal(handle.topk_idx.cpu(), moe.ids[buffer.rank])
            expected = moe.x[buffer.rank].float() * moe.ranks_of_tokens(buffer.rank)[:, None]
            assert difference(buffer.combine(got, handle)[0].cpu(), expected) < 1e-5
            return
        for call in (lambda: handle.topk_idx, lambda: buffer.combine(got, handle), lambda: buffer.dispatch(x, handle=handle)):
            with pytest.raises(RuntimeError, match="topk_idx was changed in place after the dispatch"):
                call()
    buffers(2, rank_main, make=elastic)


def test_bounds_of_calls_share_memory(buffers):
    """Programs bound a call by their batch, which changes all the time."""
    moe = Moe(2, 4, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        for most in (4, 8, 16, 20, TOKENS):
            for sync in (True, False):
                got, got_ids, _, handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS, num_max_tokens_per_rank=most,
                                                             do_cpu_sync=sync)
                count = len(moe.received(buffer.rank, moe.x))
                assert len(got) == (count if sync else 2 * most) and (got_ids[count:] == -1).all()
                tokens = [source * most + token for source, line in moe.sources(buffer.rank) for token in line.tolist()]
                assert handle.recv_src_metadata[:count, 0].tolist() == tokens
                combined, _, _ = buffer.combine(got, handle)
                assert difference(combined.cpu(), moe.x[buffer.rank].float() * moe.ranks_of_tokens(buffer.rank)[:, None]) < 1e-5
        assert len(buffer._groups.all()) == 1
        with pytest.raises(ValueError, match="3 tokens, expected at most num_max_tokens_per_rank = 2"):
            buffer.dispatch(x[:3], ids[:3], weights[:3], num_experts=EXPERTS, num_max_tokens_per_rank=2)
    buffers(2, rank_main, make=elastic)


@pytest.mark.parametrize("masked, loaded", [(1.0, False), (0.0, True)])
def test_c17_unbalanced(buffers, masked, loaded):
    """No token at all, and all tokens for the experts of one rank."""
    moe = Moe(4, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=masked)
    if loaded:
        moe.ids = [ids.argsort(1).argsort(1) for ids in moe.ids]  # 0..3, the experts of rank 0

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        for expand in (False, True):
            got, _, _, handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS, do_expand=expand)
            check_counts(moe, r, handle, 1)
            assert len(got) == (0 if masked or r else sum(map(len, moe.x)) * (TOP_K if expand else 1))
            combined, _, _ = buffer.combine(got, handle)
            copies = 0 if masked else TOP_K if expand else 1
            assert torch.equal(combined.cpu(), (moe.x[r].float() * copies).to(torch.bfloat16))
    buffers(4, rank_main, make=elastic)


def test_c17_buffers_in_a_loop_and_barriers(buffers):
    def rank_main(buffer):
        for i in range(20):
            buffer.barrier(with_cpu_sync=i % 2 == 0)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)  # of programs, whose tensors are not ours
        try:
            buffers(4, rank_main, make=elastic)
        finally:
            torch.set_default_dtype(torch.float32)


def test_what_cannot_be_done_raises(buffers):
    def rank_main(buffer):
        to = buffer._streams.device
        x = torch.zeros(TOKENS + 1, HIDDEN, dtype=torch.bfloat16, device=to)
        ids = torch.zeros(TOKENS + 1, TOP_K, dtype=torch.int64, device=to) - 1
        with pytest.raises(ValueError, match="num_max_tokens_per_rank = .*: enlarge it"):
            buffer.dispatch(x, ids, num_experts=EXPERTS)
        with pytest.raises(ValueError, match="num_experts"):
            buffer.dispatch(x, ids)
        with pytest.raises(NotImplementedError, match="engram_write"):
            buffer.engram_write(x)
        _, _, _, handle, _ = buffer.dispatch(x[:3], ids[:3] * 0 - 1, num_experts=EXPERTS)
        with pytest.raises(ValueError, match="do_expand"):
            buffer.dispatch(x[:3], handle=handle, do_expand=True)
        for other in ({"num_experts": 8}, {"expert_alignment": 16}, {"num_max_tokens_per_rank": 3}):
            with pytest.raises(ValueError, match=f"{[*other][0]} is {[*other.values()][0]}, but the handle has"):
                buffer.dispatch(x[:3], handle=handle, **other)
        buffer.dispatch(x[:3], handle=handle, num_experts=EXPERTS, expert_alignment=1, num_max_tokens_per_rank=TOKENS)
        with pytest.raises(ValueError, match="do_zero_padding needs do_expand"):
            buffer.dispatch(x[:3], ids[:3], num_experts=EXPERTS, do_zero_padding=True)
        with pytest.raises(ValueError, match="expert_alignment is 0, expected at least 1"):
            buffer.dispatch(x[:3], ids[:3], num_experts=EXPERTS, expert_alignment=0)
        assert buffer.get_physical_domain_size() == (1, 2) and buffer.get_logical_domain_size() == (1, 2)
        assert buffer.get_theoretical_num_sms(EXPERTS, TOP_K) > 0 and buffer.get_theoretical_num_qps(8) > 0
    buffers(2, rank_main, make=elastic)


def test_room_by_bytes(buffers):
    def rank_main(buffer):
        x = torch.zeros(9, HIDDEN, dtype=torch.bfloat16, device=buffer._streams.device)
        ids = torch.zeros(9, TOP_K, dtype=torch.int64, device=x.device) - 1
        with pytest.raises(ValueError, match="enlarge num_bytes"):
            buffer.dispatch(x, ids, num_experts=EXPERTS)
        buffer.dispatch(x[:8], ids[:8], num_experts=EXPERTS)
    buffers(2, rank_main, make=elastic, num_max_tokens_per_rank=0, num_bytes=2 * 2 * HIDDEN * 8)


def test_names_and_arguments():
    def names(function):
        return [name for name in inspect.signature(function).parameters if name != "self"]
    assert names(ElasticBuffer.__init__)[:16] == [
        "group", "num_bytes", "num_cpu_bytes", "num_max_tokens_per_rank", "hidden", "num_topk", "use_fp8_dispatch",
        "deterministic", "allow_hybrid_mode", "allow_multiple_reduction", "prefer_overlap_with_compute", "sl_idx",
        "num_allocated_qps", "num_cpu_timeout_secs", "num_gpu_timeout_secs", "explicitly_destroy"]
    assert names(ElasticBuffer.dispatch) == [
        "x", "topk_idx", "topk_weights", "cumulative_local_expert_recv_stats", "num_experts", "num_max_tokens_per_rank",
        "expert_alignment", "num_sms", "num_qps", "previous_event", "previous_event_before_epilogue",
        "async_with_compute_stream", "allocate_on_comm_stream", "handle", "do_handle_copy", "do_cpu_sync", "do_expand",
        "do_zero_padding", "use_tma_aligned_col_major_sf"]
    assert names(ElasticBuffer.combine) == [
        "x", "handle", "topk_weights", "bias", "num_sms", "num_qps", "previous_event", "previous_event_before_epilogue",
        "async_with_compute_stream", "allocate_on_comm_stream"]
    assert all(hasattr(ElasticBuffer, name) for name in (
        "barrier", "capture", "get_comm_stream", "get_physical_domain_size", "get_logical_domain_size",
        "get_buffer_size_hint", "get_theoretical_num_sms", "get_theoretical_num_qps", "engram_write", "engram_fetch",
        "pp_set_config", "pp_send", "pp_recv", "all_gather", "destroy"))
    assert EPHandle.token_metadata_at_forward is EPHandle.channel_linked_list is None
