# SPDX-License-Identifier: Apache-2.0
"""deep_ep.Buffer, low-latency mode."""
import pytest
import ucclep

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")
from moe import EXPERTS, HIDDEN, NRANKS, TOP_K, Moe, difference, from_fp8, place  # noqa: E402

MAX_TOKENS = 24
WIDE = 512  # four exponents fill an int32


def expected_rows(moe, rank, expert):
    """[(source rank, its tokens)] of a local expert, in order."""
    return [(source, (moe.ids[source] == rank * moe.local + expert).any(1).nonzero().flatten())
            for source in range(moe.nranks)]


def plain_rows(rows, scales, use_ue8m0):
    if scales is None:
        return rows.float()
    if use_ue8m0:
        exponents = torch.stack([scales >> (8 * i) & 255 for i in range(4)], -1).flatten(-2)
        scales = torch.exp2(exponents.float() - 127)
    return from_fp8(rows, scales)


def check_received(moe, rank, got, counts, handle, use_fp8, use_ue8m0):
    rows, scales = (part.cpu() for part in got) if use_fp8 else (got.cpu(), None)
    src_info, layout_range, max_tokens, hidden, num_experts = handle
    assert rows.shape == (moe.local, moe.nranks * MAX_TOKENS, moe.hidden)
    assert (max_tokens, hidden, num_experts) == (MAX_TOKENS, moe.hidden, moe.num_experts)
    if use_fp8:
        assert scales.shape[-1] == moe.hidden // (512 if use_ue8m0 else 128) and scales.stride(1) == 1
    plain = plain_rows(rows, scales, use_ue8m0)
    for expert in range(moe.local):
        begin = 0
        for source, tokens in expected_rows(moe, rank, expert):
            end = begin + len(tokens)
            assert layout_range[expert, source].item() == begin << 32 | len(tokens)
            assert torch.equal(src_info[expert, begin:end].cpu().long(), tokens)
            sent = moe.x[source][tokens].float()
            if use_fp8:
                assert difference(plain[expert, begin:end], sent) < 1e-3
            else:
                assert torch.equal(plain[expert, begin:end], sent)
            begin = end
        assert counts[expert].item() == begin


@pytest.mark.parametrize("use_fp8, round_scale, use_ue8m0",
                         [(False, False, False), (True, False, False), (True, True, False), (True, True, True)])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("nranks", NRANKS)
def test_c10_c11_dispatch_and_combine(buffers, nranks, asynchronous, use_fp8, round_scale, use_ue8m0):
    moe = Moe(nranks, MAX_TOKENS, WIDE, EXPERTS, TOP_K, seed=nranks, masked=0.05)

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        cumulative = torch.zeros(moe.local, dtype=torch.int32, device=x.device)
        waits = torch.zeros(nranks, dtype=torch.int64, device=x.device)
        for turn in range(2):
            got, counts, handle, event, hook = buffer.low_latency_dispatch(
                x, ids, MAX_TOKENS, EXPERTS, cumulative_local_expert_recv_stats=cumulative,
                dispatch_wait_recv_cost_stats=waits, use_fp8=use_fp8, round_scale=round_scale, use_ue8m0=use_ue8m0,
                async_finish=asynchronous)
            assert hook is None
            if asynchronous:
                event.current_stream_wait()
            check_received(moe, r, got, counts, handle, use_fp8, use_ue8m0)
            assert torch.equal(cumulative, (turn + 1) * counts) and (waits >= 0).all()
            rows = plain_rows(*got, use_ue8m0) if use_fp8 else got
            rows = rows.to(torch.bfloat16)
            zero_copy = turn == 1
            if zero_copy:
                buffer.get_next_low_latency_combine_buffer(handle)[:] = rows
            out = torch.empty_like(x) if turn else None
            combined, event, hook = buffer.low_latency_combine(
                rows, ids, weights, handle, use_logfmt=zero_copy, zero_copy=zero_copy, async_finish=asynchronous, out=out,
                combine_wait_recv_cost_stats=waits)
            assert hook is None and (out is None or combined is out)
            if asynchronous:
                event.current_stream_wait()
            expected = moe.x[r].float() * torch.where(moe.ids[r] >= 0, moe.weights[r], 0.0).sum(1, keepdim=True)
            assert not combined.isnan().any()
            assert difference(combined.cpu(), expected) < (9e-4 if use_fp8 else 1e-5)
    buffers(nranks, rank_main, low_latency_mode=True)


def test_c9_low_latency_calls_on_a_buffer_of_normal_mode(buffers):
    moe = Moe(2, 16, HIDDEN, EXPERTS, 9)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        buffer.dispatch(x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids, topk_weights=weights)
        buffer.clean_low_latency_buffer(16, HIDDEN, EXPERTS)
        got, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 16, EXPERTS, use_fp8=False)
        combined, _, _ = buffer.low_latency_combine(got, ids, weights, handle)
        assert difference(combined.cpu(), x.cpu().float() * weights.cpu().sum(1, keepdim=True)) < 1e-5
    buffers(2, rank_main)


def test_c12_results_repeat_bit_for_bit(buffers):
    moe = Moe(4, MAX_TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        results = []
        for _ in range(20):
            (rows, scales), counts, handle, _, _ = buffer.low_latency_dispatch(x, ids, MAX_TOKENS, EXPERTS)
            used = torch.arange(rows.shape[1], device=x.device)[None] < counts[:, None]
            bf16 = torch.where(used[..., None], from_fp8(rows, scales), 0.0).to(torch.bfloat16)
            combined, _, _ = buffer.low_latency_combine(bf16, ids, weights, handle)
            results.append([bf16, counts, combined])
        assert all(torch.equal(a, b) for result in results[1:] for a, b in zip(result, results[0]))
    buffers(4, rank_main, low_latency_mode=True)


def test_two_results_are_alive(buffers):
    moe = Moe(2, MAX_TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        results = [buffer.low_latency_dispatch(x * i, ids, MAX_TOKENS, EXPERTS, use_fp8=False) for i in (1, 2)]
        for i, (got, _, handle, _, _) in enumerate(results):
            combined, _, _ = buffer.low_latency_combine(got, ids, weights, handle)
            expected = moe.x[buffer.rank].float() * (i + 1) * moe.weights[buffer.rank].sum(1, keepdim=True)
            assert difference(combined.cpu(), expected) < 1e-5
        buffer.low_latency_dispatch(x, ids, MAX_TOKENS, EXPERTS, use_fp8=False)
        with pytest.raises(RuntimeError, match="too old"):
            buffer.low_latency_combine(results[0][0], ids, weights, results[0][2])
    buffers(2, rank_main, low_latency_mode=True)


@pytest.mark.parametrize("use_fp8", [False, True])
def test_c10_c14_hooks(buffers, use_fp8):
    """Rows and sums are there after the hook."""
    moe = Moe(4, MAX_TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        with pytest.raises(ValueError, match="async_finish and return_recv_hook exclude each other"):
            buffer.low_latency_dispatch(x, ids, MAX_TOKENS, EXPERTS, return_recv_hook=True, async_finish=True)
        for _ in range(3):
            got, counts, handle, event, hook = buffer.low_latency_dispatch(
                x, ids, MAX_TOKENS, EXPERTS, use_fp8=use_fp8, return_recv_hook=True)
            assert event.event is None
            hook()
            check_received(moe, r, got, counts, handle, use_fp8, False)
            rows = (from_fp8(*got) if use_fp8 else got).to(torch.bfloat16)
            combined, _, hook = buffer.low_latency_combine(rows, ids, weights, handle, return_recv_hook=True)
            hook()
            expected = moe.x[r].float() * moe.weights[r].sum(1, keepdim=True)
            assert difference(combined.cpu(), expected) < (9e-4 if use_fp8 else 1e-5)
    buffers(4, rank_main, low_latency_mode=True)
