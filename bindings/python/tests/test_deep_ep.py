# SPDX-License-Identifier: Apache-2.0
"""deep_ep.Buffer, normal mode."""
import gc

import pytest

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")
import ucclep  # noqa: E402
from deep_ep import Buffer, Config, EventOverlap  # noqa: E402
from deep_ep.utils import EventHandle  # noqa: E402
from moe import EXPERTS, HIDDEN, NRANKS, ROOM, TOKENS, TOP_K, Moe, difference, from_fp8, place, to_fp8  # noqa: E402

@pytest.mark.parametrize("nranks", [2, 8])
def test_c1_layout(buffers, nranks):
    moe = Moe(nranks, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=0.1)

    def rank_main(buffer):
        r = buffer.rank
        x, ids, _ = place(moe, buffer)
        expected = torch.stack([moe.in_rank(r, rank) for rank in range(nranks)], 1)
        for turn in range(2):  # by torch alone, and by the library, when the shape is there
            per_rank, per_node, per_expert, in_rank, event = buffer.get_dispatch_layout(ids, EXPERTS)
            assert torch.equal(in_rank.cpu(), expected)
            assert per_rank.tolist() == expected.sum(0).tolist() and per_node is None and event.event is None
            assert per_expert.tolist() == [(moe.ids[r] == e).sum().item() for e in range(EXPERTS)]
            assert (buffer._groups.with_experts(EXPERTS) is not None) == (turn == 1)
            buffer.dispatch(x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids)
    buffers(nranks, rank_main)


def payloads(moe):
    """Name, then what each rank sends, then fp32 of it: C2's kinds of x."""
    constant = [torch.full_like(x, rank + 1) for rank, x in enumerate(moe.x)]
    fp8 = [to_fp8(x) for x in moe.x]
    columns = [(rows, scales.t().contiguous().t()) for rows, scales in fp8]
    plain = [from_fp8(*pair) for pair in fp8]
    return {"random": (moe.x, moe.x), "constant": (constant, constant), "fp8": (fp8, plain), "columns": (columns, plain)}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("with_topk", [True, False])
@pytest.mark.parametrize("nranks", NRANKS)
def test_c2_to_c6_dispatch_and_combine(buffers, nranks, with_topk, asynchronous):
    moe = Moe(nranks, TOKENS, HIDDEN, EXPERTS, TOP_K, seed=nranks, masked=0.05)
    kinds = payloads(moe)

    def rank_main(buffer):
        r, to = buffer.rank, buffer._streams.device
        _, ids, weights = place(moe, buffer)
        how = dict(async_finish=asynchronous, allocate_on_comm_stream=asynchronous,
                   previous_event=EventOverlap(EventHandle()) if asynchronous else None)

        def wait(event):
            if asynchronous:
                event.current_stream_wait()

        for sent, plain in kinds.values():
            mine = tuple(part.to(to) for part in sent[r]) if isinstance(sent[r], tuple) else sent[r].to(to)
            per_rank, _, per_expert, in_rank, event = buffer.get_dispatch_layout(ids, EXPERTS, **how)
            wait(event)
            more = dict(topk_idx=ids, topk_weights=weights) if with_topk else {}
            got, got_ids, got_weights, counts, handle, event = buffer.dispatch(
                mine, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert,
                expert_alignment=8, **more, **how)
            wait(event)
            assert counts == [-(-n // 8) * 8 for n in moe.tokens_per_expert(r)]
            counts_by_rank = torch.tensor([len(tokens) for _, tokens in moe.sources(r)])
            assert torch.equal(handle[0][:, r].cpu(), counts_by_rank.cumsum(0).int()) and torch.equal(handle[4], in_rank)
            assert torch.equal(handle[1][:, 0], per_rank)
            if isinstance(sent[r], tuple):
                for part in range(2):
                    assert torch.equal(got[part].cpu(), moe.received(r, [pair[part] for pair in sent]))
            else:
                assert torch.equal(got.cpu(), moe.received(r, sent))
            assert handle[3].tolist() == torch.cat([tokens for _, tokens in moe.sources(r)]).tolist()
            if with_topk:
                assert torch.equal(got_ids.cpu(), moe.received_ids(r))
                assert torch.equal(got_weights.cpu(), moe.received_weights(r))
            else:
                assert got_ids is None and got_weights is None

            # A cached dispatch gives the same rows.
            again, *rest, event = buffer.dispatch(mine, handle=handle, **how)
            wait(event)
            assert rest == [None] * 4
            pairs = zip(again, got) if isinstance(got, tuple) else [(again, got)]
            assert all(torch.equal(a, b) for a, b in pairs)

            rows = moe.received(r, plain).to(torch.bfloat16).to(to)
            combined, none, event = buffer.combine(rows, handle, **how)
            wait(event)
            expected = plain[r].float() * moe.ranks_of_tokens(r)[:, None]
            assert none is None and difference(combined.cpu(), expected) < (5e-4 if isinstance(sent[r], tuple) else 5e-6)
    buffers(nranks, rank_main)


@pytest.mark.parametrize("nranks", [4])
def test_c5_worst_tokens(buffers, nranks):
    moe = Moe(nranks, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        got, got_ids, got_weights, counts, handle, _ = buffer.dispatch(
            x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids,
            topk_weights=weights, num_worst_tokens=nranks * TOKENS)
        expected = moe.received(r, moe.x)
        assert counts == [] and got.shape[0] == nranks * TOKENS
        assert torch.equal(got[:len(expected)].cpu(), expected)
        assert torch.equal(got_ids[:len(expected)].cpu(), moe.received_ids(r))
        assert (got_ids[len(expected):] == -1).all() and (got_weights[len(expected):] == 0).all()
        combined, _, _ = buffer.combine(got, handle)
        assert difference(combined.cpu(), moe.x[r].float() * moe.ranks_of_tokens(r)[:, None]) < 5e-6
    buffers(nranks, rank_main)


def dispatched(buffer, moe, **more):
    x, ids, weights = place(moe, buffer)
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
    return buffer.dispatch(x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids,
                           topk_weights=weights, **more)


def test_c7_bias(buffers):
    moe = Moe(4, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        got, _, _, _, handle, _ = dispatched(buffer, moe)
        bias = [torch.ones_like(moe.x[buffer.rank]).to(got.device) * (i + 1) for i in range(2)]
        plain, _, _ = buffer.combine(got, handle)
        one, _, _ = buffer.combine(got, handle, bias=bias[0])
        two, _, _ = buffer.combine(got, handle, bias=tuple(bias))
        assert difference(one, plain + 1) < 5e-6 and difference(two, plain + 3) < 5e-6
    buffers(4, rank_main)


def test_c8_results_repeat_bit_for_bit(buffers):
    moe = Moe(4, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        results = []
        for _ in range(20):
            got, ids, weights, _, handle, _ = dispatched(buffer, moe)
            combined, _, _ = buffer.combine(got * 3, handle)
            results.append([got, ids, weights, combined])
        assert all(torch.equal(a, b) for result in results[1:] for a, b in zip(result, results[0]))
        assert len(buffer._groups.all()) == 1
    buffers(4, rank_main)


def test_what_cannot_be_done_raises(buffers):
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x, ids, _ = place(moe, buffer)
        many = ids.new_zeros((32769, TOP_K)) - 1
        counts = ids.new_zeros(EXPERTS)
        with pytest.raises(ValueError, match="32769 tokens, expected at most 32768"):
            buffer.dispatch(x.new_zeros((32769, HIDDEN)), topk_idx=many, num_tokens_per_expert=counts)
        with pytest.raises(NotImplementedError, match="NVFP4"):
            buffer.dispatch((x, x, x), topk_idx=ids, num_tokens_per_expert=counts)
        with pytest.raises(ValueError, match="needs topk_idx, or is_token_in_rank, or a handle"):
            buffer.dispatch(x, num_tokens_per_expert=counts)
        with pytest.raises(ValueError, match="even"):
            Buffer.set_num_sms(3)
        with pytest.raises(RuntimeError, match="async_finish"):
            EventOverlap().current_stream_wait()
        with pytest.raises(NotImplementedError, match="use_nvfp4"):
            buffer.low_latency_dispatch(x, ids, 8, EXPERTS, use_nvfp4=True)
        with pytest.raises(NotImplementedError, match="comp_signal"):
            buffer.low_latency_combine(x, ids, ids, (), comp_signal=x)
    buffers(2, rank_main)


def test_a_call_may_have_more_tokens_than_num_nvl_bytes_holds(buffers, monkeypatch):
    tokens, hidden, ranks = 700, 1024, 2
    monkeypatch.setattr("deep_ep.high_throughput.MIN_WINDOW_BYTES", 0)
    moe = Moe(ranks, tokens, hidden, EXPERTS, TOP_K, uneven=False)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        got, _, got_weights, _, handle, _ = buffer.dispatch(x, topk_idx=ids, topk_weights=weights, is_token_in_rank=in_rank,
                                                            num_tokens_per_expert=per_expert)
        shape = dict(num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=32768, ll_max_tokens_per_rank=1,
                     max_token_bytes=2 * hidden, window_bytes=buffer.num_nvl_bytes)
        assert ucclep.group.limits(buffer._comm, **shape)["tokens_per_round"] < tokens / 2
        assert torch.equal(got.cpu(), moe.received(buffer.rank, moe.x))
        assert torch.equal(got_weights.cpu(), moe.received_weights(buffer.rank))
        combined, sums, _ = buffer.combine(got, handle, topk_weights=got_weights)
        copies = moe.ranks_of_tokens(buffer.rank)[:, None]
        assert torch.equal(combined.cpu(), moe.x[buffer.rank] * copies)
        assert difference(sums.cpu(), moe.weights[buffer.rank]) < 1e-6
    buffers(ranks, rank_main, num_nvl_bytes=4 << 20)


def test_hints_make_room():
    config = Buffer.get_dispatch_config(8)
    assert isinstance(config, Config) and config.num_sms == Buffer.num_sms
    assert config.get_nvl_buffer_size_hint(2 * 7168, 8) == 10 * 8 * 256 * 2 * 7168
    assert config.get_rdma_buffer_size_hint(2 * 7168, 16) == 0
    assert Buffer.get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank=128, hidden=7168, num_ranks=8,
                                                 num_experts=288) > 2 * 128 * 8 * 7168
    with Buffer.capture():
        pass


def test_c6_weights_come_back(buffers):
    """Each token's weights, from the ranks that have its experts, with a bias and without one."""
    moe = Moe(4, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=0.05)

    def rank_main(buffer):
        r = buffer.rank
        got, _, weights, _, handle, _ = dispatched(buffer, moe)
        sums = moe.x[r].float() * moe.ranks_of_tokens(r)[:, None]
        for bias in (None, moe.x[r], (moe.x[r], moe.x[r])):
            added = 0 if bias is None else 1 if torch.is_tensor(bias) else 2
            there = tuple(b.to(got.device) for b in bias) if isinstance(bias, tuple) else bias
            there = bias.to(got.device) if torch.is_tensor(bias) else there
            combined, combined_weights, _ = buffer.combine(got, handle, topk_weights=weights, bias=there)
            assert difference(combined.cpu(), sums + added * moe.x[r].float()) < 5e-6
            assert torch.equal(combined_weights.cpu(), torch.where(moe.ids[r] >= 0, moe.weights[r], 0.0))
    buffers(4, rank_main)


@pytest.mark.parametrize("worst", [0, 2 * TOKENS])
def test_where_tokens_go_is_the_callers(buffers, worst):
    """Without topk_idx the mask has all destinations; with both, it removes ranks."""
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=0.3)

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        how = dict(num_tokens_per_rank=per_rank, num_tokens_per_expert=per_expert, num_worst_tokens=worst)
        expected = moe.received(r, moe.x)
        got, got_ids, _, counts, handle, _ = buffer.dispatch(x, is_token_in_rank=in_rank.clone(), **how)
        assert got_ids is None and torch.equal(got[:len(expected)].cpu(), expected)
        assert counts == ([] if worst else moe.tokens_per_expert(r))
        combined, _, _ = buffer.combine(got, handle)
        assert difference(combined.cpu(), moe.x[r].float() * moe.ranks_of_tokens(r)[:, None]) < 5e-6

        kept = in_rank.clone()
        kept[::2, 1] = False
        got, got_ids, _, _, handle, _ = buffer.dispatch(x, is_token_in_rank=kept, topk_idx=ids, topk_weights=weights, **how)
        sent = torch.cat([moe.x[source][tokens[tokens % 2 == 1] if r else tokens] for source, tokens in moe.sources(r)])
        assert torch.equal(got[:len(sent)].cpu(), sent) and (got_ids[len(sent):] == -1).all()
        assert torch.equal(handle[4], kept) and handle[1][:, 0].tolist() == kept.sum(0).tolist()
        combined, _, _ = buffer.combine(got, handle)
        assert difference(combined.cpu(), moe.x[r].float() * kept.cpu().sum(1, keepdim=True)) < 5e-6
        if not x.is_cuda:
            with pytest.raises(ValueError, match=r"is_token_in_rank\[0, 0\] is True, but topk_idx\[0\] has no expert of rank 0"):
                buffer.dispatch(x, is_token_in_rank=torch.ones_like(in_rank), topk_idx=torch.full_like(ids, -1), **how)
    buffers(2, rank_main)


class Layer(torch.autograd.Function):
    """Programs save the tensors of a handle, and use them in the backward pass."""

    @staticmethod
    def forward(ctx, x, buffer, moe, asynchronous):
        ids, weights = moe.ids[buffer.rank].to(x.device), moe.weights[buffer.rank].to(x.device)
        _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        got, _, _, _, handle, event = buffer.dispatch(x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert,
                                                      topk_idx=ids, topk_weights=weights, async_finish=asynchronous)
        ctx.buffer = buffer
        ctx.save_for_backward(*handle)
        if asynchronous:
            event.current_stream_wait()  # which fills in the handle
        return got

    @staticmethod
    def backward(ctx, gradient):
        handle = ctx.saved_tensors
        assert handle[0][:, ctx.buffer.rank].tolist()[-1] == len(gradient)
        combined, _, _ = ctx.buffer.combine(gradient.contiguous(), handle)
        return combined, None, None, None


@pytest.mark.parametrize("asynchronous", [False, True])
def test_handles_are_saved_for_backward(buffers, asynchronous):
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x = place(moe, buffer)[0].float().requires_grad_()
        rows = Layer.apply(x, buffer, moe, asynchronous)
        gc.collect()
        assert torch.equal(rows.detach().cpu(), moe.received(buffer.rank, moe.x).float())
        torch.autograd.backward(rows, torch.ones_like(rows))  # not by sum(), whose gradient has no memory of its own
        assert torch.equal(x.grad.cpu(), torch.ones_like(x).cpu() * moe.ranks_of_tokens(buffer.rank)[:, None])
    buffers(2, rank_main, num_nvl_bytes=2 * 4 * HIDDEN * ROOM)


def test_what_is_no_handle(buffers):
    moe = Moe(1, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        got, *_, handle, _ = dispatched(buffer, moe)
        copies = tuple(tensor.clone() for tensor in handle)
        buffer.combine(got, copies)  # the original is there
        del handle
        gc.collect()
        for wrong, error, words in ((copies, ValueError, "a copy whose original was released"), ((), TypeError, "handle is a tuple"),
                                    (None, TypeError, "handle is a NoneType")):
            with pytest.raises(error, match=words):
                buffer.combine(got, wrong)
    buffers(1, rank_main)


def test_handles_between_nodes(buffers, monkeypatch):
    """They have DeepEP's positions there, too."""
    monkeypatch.setenv("UCCLEP_NODES", "2,2")
    moe = Moe(4, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        r = buffer.rank
        x, ids, _ = place(moe, buffer)
        per_rank, per_node, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        assert per_node.tolist() == [in_rank[:, ranks].any(1).sum() for ranks in ([0, 1], [2, 3])]
        got, *_, handle, _ = buffer.dispatch(x, num_tokens_per_rank=per_rank, num_tokens_per_rdma_rank=per_node,
                                             is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids)
        prefix = torch.tensor([len(tokens) for _, tokens in moe.sources(r)]).cumsum(0)
        assert len(handle) == 10 and handle[-4].tolist() == prefix.tolist() and handle[-6].tolist() == prefix[[1, 3]].tolist()
        meta = handle[-3].clone().view(torch.int64).flatten()
        assert meta.tolist() == [source << 32 | t for source, tokens in moe.sources(r) for t in tokens.tolist()]
        combined, _, _ = buffer.combine(got, handle)
        assert difference(combined.cpu(), moe.x[r].float() * moe.ranks_of_tokens(r)[:, None]) < 5e-5
    buffers(4, rank_main)
