# SPDX-License-Identifier: Apache-2.0
"""deep_ep.HybridEPBuffer, with dense maps of experts as Megatron-LM passes them, and with ids."""
import gc
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")
import ucclep  # noqa: E402
from deep_ep.hybrid_ep_buffer import HybridEPBuffer, indices_to_map  # noqa: E402
from deep_ep.routes import first_choices  # noqa: E402
from moe import EXPERTS, HIDDEN, NRANKS, TOKENS, TOP_K, Moe, difference, from_fp8, place, to_fp8  # noqa: E402
from test_deep_ep_elastic import expanded, up  # noqa: E402


def hybrid(mpi, tokens=TOKENS, **settings):
    buffer = HybridEPBuffer(None, hidden_dim=HIDDEN, max_num_of_tokens_per_rank=tokens, num_local_experts=EXPERTS // mpi.size,
                            comm=mpi, **settings)
    assert buffer.rank == mpi.rank
    return buffer


def dense(moe, buffer):
    """(routing_map, probs) of a rank."""
    _, ids, weights = place(moe, buffer)
    return indices_to_map(ids, weights, len(ids), EXPERTS)


def check_rows(moe, rank, got, of, probs, alignment, counts):
    """Rows for each expert, zero where they are padding, and their probs."""
    rows, total = expanded(moe, rank, alignment)
    assert counts.tolist() == [up(count, alignment) for count in moe.tokens_per_expert(rank)]
    used = torch.zeros(len(got), dtype=torch.bool)
    for row, source, token, k in rows:
        used[row] = True
        assert torch.equal(got[row], of[source][token])
        assert probs is None or probs[row] == moe.weights[source][token, k]
    assert (got[:total][~used[:total]].view(torch.uint8) == 0).all()
    assert probs is None or (probs[~used] == 0).all()


@pytest.mark.parametrize("alignment", [None, 16])
@pytest.mark.parametrize("by_map", [True, False])
@pytest.mark.parametrize("nranks", NRANKS)
def test_rows_for_each_expert(buffers, nranks, by_map, alignment):
    moe = Moe(nranks, TOKENS, HIDDEN, EXPERTS, TOP_K, seed=nranks, masked=0.1)
    fp8 = [to_fp8(x) for x in moe.x]

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        routing_map, probs = dense(moe, buffer)
        where = dict(routing_map=routing_map, probs=probs) if by_map else \
            dict(topk_idx=ids, topk_weights=weights, num_of_experts=EXPERTS)
        for non_blocking in (False, True):
            most = nranks * TOKENS * TOP_K
            how = dict(pad_multiple=alignment, non_blocking=non_blocking, num_permuted_tokens=most if non_blocking else None)
            got, got_probs, scales, counts, handle = buffer.dispatch_with_permute(hidden=x, **where, **how)
            assert scales is None and counts.dtype == torch.int64 and (non_blocking or counts.device.type == "cpu")
            assert len(got) == (most if non_blocking else counts.sum())
            check_rows(moe, r, got.cpu(), moe.x, got_probs.cpu(), alignment or 1, counts)
            tokens = int(handle[3])
            assert tokens == len(moe.received_ids(r)) and not int(handle[8])
            local = torch.zeros(tokens, moe.local + 1, dtype=torch.bool)
            local.scatter_(1, torch.where(moe.received_ids(r) >= 0, moe.received_ids(r), moe.local), True)
            assert torch.equal(handle[4][:tokens].cpu(), local[:, :-1]) and not handle[4][tokens:].any()

            copies = (moe.ids[r] >= 0).sum(1, keepdim=True)
            sums, none = buffer.combine_with_unpermute(hidden=got, handle=handle, pad_multiple=alignment)
            assert none is None and difference(sums.cpu(), moe.x[r].float() * copies) < 1e-5
            sums, sum_probs = buffer.combine_with_unpermute(hidden=got, probs=got_probs, handle=handle, pad_multiple=alignment)
            assert difference(sums.cpu(), moe.x[r].float() * copies) < 1e-5 and torch.equal(sum_probs, probs)

            # The gradient of combine: the same routing again, with other rows.
            again, none, _, same, again_handle = buffer.dispatch_with_permute(hidden=x * 2, handle=handle, **how)
            assert none is None and torch.equal(same, counts) and again_handle is handle
            check_rows(moe, r, again.cpu(), [2 * rows for rows in moe.x], None, alignment or 1, counts)

        values, scales = (part.to(x.device) for part in fp8[r])
        got, _, got_scales, counts, _ = buffer.dispatch_with_permute(hidden=values, scaling_factor=scales, use_fp8=True, **where,
                                                                     pad_multiple=alignment)
        check_rows(moe, r, from_fp8(got.cpu(), got_scales.cpu()), [from_fp8(*pair) for pair in fp8], None, alignment or 1, counts)
    buffers(nranks, rank_main, make=hybrid)


@pytest.mark.parametrize("nodes", ["4", "2,2"])
def test_rows_for_each_rank(buffers, monkeypatch, nodes):
    monkeypatch.setenv("UCCLEP_NODES", nodes)
    moe = Moe(4, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=0.1)

    def rank_main(buffer):
        r = buffer.rank
        x = place(moe, buffer)[0]
        routing_map, probs = dense(moe, buffer)
        got, got_probs, scales, handle = buffer.dispatch(x, routing_map=routing_map, probs=probs)
        size, local = buffer.config.num_of_ranks_per_node, moe.local
        assert (buffer.num_of_nodes, size) == ((1, 4) if nodes == "4" else (2, 2)) and scales is None
        assert torch.equal(got.cpu(), moe.received(r, moe.x)) and int(handle[3]) == len(got)
        expected = indices_to_map(moe.received_ids(r), moe.received_weights(r), len(got), local)
        assert torch.equal(handle[4].cpu(), expected[0])
        assert got_probs.shape == (len(got), size * local)
        mine = slice(buffer.local_rank * local, (buffer.local_rank + 1) * local)
        assert torch.equal(got_probs[:, mine].cpu(), expected[1]) and (got_probs != 0).sum() == (expected[1] != 0).sum()
        for weights in (None, got_probs):
            sums, sum_probs = buffer.combine(got, weights, handle)
            assert difference(sums.cpu(), moe.x[r].float() * moe.ranks_of_tokens(r)[:, None]) < 5e-5
            assert sum_probs is None if weights is None else torch.equal(sum_probs, probs)
        again, _, _, same = buffer.dispatch(x * 2, handle=handle)
        assert same is handle and torch.equal(again, got * 2)
        with pytest.raises(ValueError, match="the handle is from dispatch, expected one from dispatch_with_permute"):
            buffer.combine_with_unpermute(hidden=got, handle=handle)
    buffers(4, rank_main, make=hybrid)


def test_rows_beyond_the_callers_bound_are_left_out(buffers):
    """Rows of the last experts are dropped, and the handle has a flag for it."""
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        r = buffer.rank
        x = place(moe, buffer)[0]
        routing_map, probs = dense(moe, buffer)
        rows, total = expanded(moe, r, 1)
        most = total // 2
        got, _, _, counts, handle = buffer.dispatch_with_permute(hidden=x, routing_map=routing_map, probs=probs,
                                                                 num_permuted_tokens=most, non_blocking=True)
        assert int(handle[8]) == 1 and counts.sum() == most and buffer.num_data_errors == 0
        for row, source, token, _ in rows[:most]:
            assert torch.equal(got[row].cpu(), moe.x[source][token])
        buffer.combine_with_unpermute(hidden=got, handle=handle)
    buffers(2, rank_main, make=hybrid)


def test_more_tokens_than_at_first_take_more_room(buffers):
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K, uneven=False)

    def rank_main(buffer):
        x = place(moe, buffer)[0]
        routing_map, probs = dense(moe, buffer)
        for count in (4, 8, TOKENS, 4):
            got, got_probs, _, counts, handle = buffer.dispatch_with_permute(
                hidden=x[:count], routing_map=routing_map[:count], probs=probs[:count])
            assert buffer.config.max_num_of_tokens_per_rank == (8 if count <= 8 and not buffer.grown else 512)
            buffer.grown |= count == TOKENS
            assert buffer.configurer.buffer_config is buffer.config
            sums, sum_probs = buffer.combine_with_unpermute(hidden=got, probs=got_probs, handle=handle)
            assert difference(sums, x[:count].float() * TOP_K) < 1e-5 and torch.equal(sum_probs, probs[:count])

    def make(mpi):
        buffer = hybrid(mpi, 8)
        buffer.grown = False
        return buffer
    buffers(2, rank_main, make=make)


def test_handles_live_as_long_as_their_tensors(buffers):
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x = place(moe, buffer)[0]
        kept = []
        for turn in range(4):
            got, *_, handle = buffer.dispatch_with_permute(hidden=x * turn, routing_map=dense(moe, buffer)[0])
            kept.append((got, handle))
            del handle
            gc.collect()
        for turn, (got, handle) in enumerate(kept):
            sums, _ = buffer.combine_with_unpermute(hidden=got, handle=handle)
            assert difference(sums, x.float() * turn * TOP_K) < 1e-5
    buffers(2, rank_main, make=hybrid)


def test_what_cannot_be_done_raises(buffers):
    def rank_main(buffer):
        to = buffer._streams.device
        x, wide = torch.zeros(2, HIDDEN, dtype=torch.bfloat16, device=to), torch.ones(2, 40, dtype=torch.bool, device=to)
        calls = [
            (ValueError, "needs routing_map, or topk_idx with num_of_experts", dict(hidden=x)),
            (ValueError, "needs routing_map, or topk_idx with num_of_experts", dict(hidden=x, topk_idx=wide.long())),
            (ValueError, "non_blocking needs num_permuted_tokens", dict(hidden=x, routing_map=wide, non_blocking=True)),
            (ValueError, "a token has 40 destinations, expected at most 32", dict(hidden=x, routing_map=wide)),
            (TypeError, "routing_map has dtype torch.int64, expected torch.bool", dict(hidden=x, routing_map=wide.long())),
            (ValueError, "the routing has 2 tokens, but hidden has 1", dict(hidden=x[:1], routing_map=wide[:, :16])),
            (ValueError, "expert_alignment", dict(hidden=x, routing_map=wide[:, :16], pad_multiple=24)),
            (TypeError, "no_such", dict(hidden=x, no_such=1))]
        for error, words, how in calls:
            with pytest.raises(error, match=words):
                buffer.dispatch_with_permute(**how)
        with pytest.raises(ValueError, match="combine_with_unpermute needs the handle of a dispatch"):
            buffer.combine_with_unpermute(hidden=x)
    buffers(1, rank_main, make=hybrid)


@pytest.mark.parametrize("most", [32, 40])
def test_more_choices_than_there_may_be_leave_a_record(buffers, most):
    """A call that does not wait for the GPU cannot raise: the device says so."""
    chosen = torch.zeros(2, 40, dtype=torch.bool)
    chosen[:, :most] = True
    ids = first_choices(chosen)
    assert ids.tolist() == [[*range(31), 31 if most == 32 else 30]] * 2

    def rank_main(buffer):
        if buffer._streams.device.type != "cpu":
            pytest.skip("a later call reads the record")
        group = buffer._normal.group("dispatch", 40, 32, 2 * HIDDEN, 8)
        twice = pytest.raises(ucclep.InvalidArgument, match="the id 30, which is out of range .* or twice in its row")
        with nullcontext() if most == 32 else twice:
            with buffer._streams.operation(None, False) as stream:
                routing = buffer._normal.update("dispatch", group, ids, ucclep.Layout.FLAT, 1, stream)
            buffer._streams.finished(False, (ids, routing.recv_tokens_per_rank, routing.recv_tokens_per_expert))
        assert buffer.num_data_errors == (most > 32)
    buffers(1, rank_main, make=hybrid)
