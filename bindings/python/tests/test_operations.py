# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine of NumPy arrays against the sums that a loop makes."""
import numpy as np
import pytest

import ucclep
from ucclep import Layout, Mode, OverflowRows, Quant, ReplicaChoice
from ucclep.eplb import rebalance_experts

R, L, K, B, H = 4, 2, 3, 16, 64
E = R * L


@pytest.fixture(autouse=True)
def only_on_the_host(device):
    if device != "host":
        pytest.skip("NumPy arrays are the host device's")


class World:
    """What all ranks send: ids without repetition, some -1, and another number of tokens on each rank."""

    def __init__(self, seed=1):
        random = np.random.default_rng(seed)
        self.tokens = [B - 3 * rank for rank in range(R)]
        self.ids = [np.argsort(random.random((t, E)), axis=1)[:, :K].astype(np.int64) for t in self.tokens]
        for ids in self.ids:
            ids[random.random(ids.shape) < 0.1] = -1
        self.weights = [random.random((t, K), np.float32) for t in self.tokens]
        self.x = [random.standard_normal((t, H)).astype(np.float32) for t in self.tokens]

    def rows_of(self, expert):
        """(source rank, token) of the rows that an expert receives, in order."""
        return [(r, t) for r in range(R) for t in range(self.tokens[r]) if expert in self.ids[r][t]]


def group_of(comm, **more):
    return ucclep.Group(comm, num_experts=E, top_k=K, max_tokens_per_rank=B, max_token_bytes=4 * H, **more)


def test_ll_expert_major(ranks):
    world = World()

    def rank_main(comm):
        r, group = comm.rank, group_of(comm)
        handle = group.handle(Layout.EXPERT_MAJOR, Mode.LL)
        rows = np.zeros((L, R * B, H), np.float32)
        counts, sources = np.zeros(L, np.int32), np.zeros((L, R * B), np.int64)
        handle.dispatch(world.x[r], rows, topk_idx=world.ids[r], topk_weights=world.weights[r], src_info=sources,
                        counters={"tokens_per_expert": counts})
        comm.synchronize()
        for l in range(L):
            expected = world.rows_of(r * L + l)
            assert counts[l] == len(expected)
            assert [(s >> 32, s & 0xffffffff) for s in sources[l, :counts[l]]] == expected
            assert all((rows[l, i] == world.x[s][t]).all() for i, (s, t) in enumerate(expected))
        rows *= 2
        result = np.zeros((world.tokens[r], H), np.float32)
        handle.combine(rows, result)
        comm.synchronize()
        scale = 2 * np.where(world.ids[r] >= 0, world.weights[r], 0).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(result, scale * world.x[r], rtol=1e-5, atol=1e-6)
    ranks(R, rank_main)


@pytest.mark.parametrize("mode", [Mode.LL, Mode.HT])
@pytest.mark.parametrize("combines", [True, False])
def test_by_waves(ranks, mode, combines):
    """Each expert works when its wave is there; the last rank leaves the loop after the first."""
    world = World()

    def rank_main(comm):
        r, group = comm.rank, group_of(comm)
        handle = group.handle(Layout.EXPERT_MAJOR, mode, waves=2)
        low = mode == Mode.LL
        capacity = sum(len(world.rows_of(r * L + l)) for l in range(L))
        rows = np.full((L, R * B, H) if low else (capacity, H), np.nan, np.float32)
        result = np.zeros((world.tokens[r], H), np.float32)
        weights = {"topk_weights": np.ones((world.tokens[r], K), np.float32)} if low else {}
        handle.dispatch(world.x[r], rows, topk_idx=world.ids[r], send_only=True, **weights)
        if combines:
            handle.combine(rows, result, send_only=True)
        first = 0
        for experts in handle.by_waves(combines=combines):
            comm.synchronize()
            for l in experts:
                expected = world.rows_of(r * L + l)
                mine = rows[l, :len(expected)] if low else rows[first:first + len(expected)]
                first += len(expected)
                assert all((mine[i] == world.x[s][t]).all() for i, (s, t) in enumerate(expected))
                mine *= l + 2
            if r == R - 1:
                break
        if r == R - 1:
            handle.complete()
            comm.synchronize()
            last = rows[L - 1, :len(world.rows_of(E - 1))] if low else rows[first:]
            last *= 1 if combines else L + 1
        if not combines:
            handle.combine(rows, result)
        comm.synchronize()
        factors = [1 if combines and e == E - 1 else e % L + 2 for e in range(E)]
        sums = np.array([sum(factors[e] for e in ids if e >= 0) for ids in world.ids[r]], np.float32)
        np.testing.assert_allclose(result, world.x[r] * sums[:, None], rtol=1e-5)
        handle.destroy()

    ranks(R, rank_main)


def test_ht_flat(ranks):
    world = World(2)

    def rank_main(comm):
        r, group = comm.rank, group_of(comm)
        handle = group.handle(Layout.FLAT)
        per_rank = np.zeros(R, np.int32)
        handle.update(world.ids[r], counters={"tokens_per_rank": per_rank})
        total, per_expert = handle.wait_counts()
        assert per_expert == [len(world.rows_of(r * L + l)) for l in range(L)]
        expected = sorted({row for l in range(L) for row in world.rows_of(r * L + l)})
        rows, ids = np.zeros((total, H), np.float32), np.zeros((total, K), np.int64)
        weights = np.zeros((total, K), np.float32)
        handle.dispatch(world.x[r], rows, topk_weights=world.weights[r], out_topk_idx=ids, out_topk_weights=weights)
        comm.synchronize()
        assert total == len(expected) == per_rank.sum()
        for i, (s, t) in enumerate(expected):
            local = world.ids[s][t] - r * L
            mine = (local >= 0) & (local < L)
            assert (rows[i] == world.x[s][t]).all()
            assert (ids[i] == np.where(mine, local, -1)).all()
            assert (weights[i] == np.where(mine, world.weights[s][t], 0)).all()
        result, bias = np.zeros((world.tokens[r], H), np.float32), np.ones((world.tokens[r], H), np.float32)
        handle.combine(rows, result, bias=bias)
        comm.synchronize()
        places = [len({e // L for e in ids if e >= 0}) for ids in world.ids[r]]
        np.testing.assert_allclose(result, np.array(places)[:, None] * world.x[r] + 1, rtol=1e-5, atol=1e-6)
    ranks(R, rank_main)


@pytest.mark.parametrize("overflow", OverflowRows)
def test_rows_beyond_a_limit(ranks, overflow):
    world, limit = World(9), 10

    def rank_main(comm):
        r, group = comm.rank, group_of(comm, max_recv_tokens_per_rank=limit, overflow=overflow)
        handle = group.handle(Layout.FLAT)
        handle.update(world.ids[r])
        total, _ = handle.wait_counts()
        assert total > limit
        rows, result = np.zeros((limit, H), np.float32), np.zeros((world.tokens[r], H), np.float32)
        handle.dispatch(world.x[r], rows)
        handle.combine(rows, result)
        comm.synchronize()
        kept = [sorted({row for l in range(L) for row in world.rows_of(rank * L + l)})[:limit] for rank in range(R)]
        assert all((rows[i] == world.x[s][t]).all() for i, (s, t) in enumerate(kept[r]))
        places = [sum((r, t) in of_rank for of_rank in kept) for t in range(world.tokens[r])]
        np.testing.assert_allclose(result, np.array(places)[:, None] * world.x[r], rtol=1e-5, atol=1e-6)
        record = comm.async_error()
        assert (record is None) == (overflow is OverflowRows.DROP)
    ranks(R, rank_main)


def test_bf16_and_fp8_as_integers(ranks):
    def rank_main(comm):
        group = ucclep.Group(comm, num_experts=2, top_k=1, max_tokens_per_rank=2, max_token_bytes=512)
        handle = group.handle(Layout.EXPERT_MAJOR, Mode.LL)
        ones = np.full((2, 256), 0x3f80, np.uint16)  # 1.0
        rows, scales = np.zeros((1, 4, 256), np.uint8), np.zeros((1, 4, 2), np.float32)
        ids = np.array([[0], [1]], np.int32)
        handle.dispatch(ucclep.tensor(ones, "bfloat16"), ucclep.tensor(rows, "float8_e4m3fn"), out_scales=scales,
                        topk_idx=ids, quant=Quant.FP8_128)
        comm.synchronize()
        assert (rows[0, :2] == 0x7e).all()  # 448
        np.testing.assert_allclose(scales[0, :2], 1 / 448, rtol=1e-6)
    ranks(2, rank_main)


def test_routing_counts(ranks):
    world = World(3)

    def rank_main(comm):
        r, group = comm.rank, group_of(comm)
        per_rank, per_expert = np.zeros(R, np.int32), np.zeros(E, np.int64)
        inside = np.zeros((world.tokens[r], R), bool)
        group.routing_counts(world.ids[r], tokens_per_rank=per_rank, tokens_per_expert=per_expert,
                             is_token_in_rank=inside)
        comm.synchronize()
        expected = np.stack([((world.ids[r] // L) == rank).any(axis=1) & True for rank in range(R)], axis=1)
        assert (inside == expected).all() and (per_rank == inside.sum(axis=0)).all()
        assert per_expert.tolist() == [(world.ids[r] == e).sum() for e in range(E)]
    ranks(R, rank_main)


@pytest.mark.parametrize("choice", ReplicaChoice)
def test_an_expert_map_of_eplb(ranks, choice):
    world, logical_experts = World(5), 6
    loads = [[90, 10, 40, 61, 4, 30]]
    for ids in world.ids:
        ids[ids >= logical_experts] = -1
    _, logical, copies = rebalance_experts(loads, E, 1, 1, R)

    def taken(rank, token, expert):
        places = logical[0][expert][:copies[0][expert]]
        own = [place for place in places if place // L == rank]
        if choice == ReplicaChoice.NEAREST:  # all ranks are in one domain
            return own[0] if own else places[0]
        return places[(rank + token) % len(places)]

    def rank_main(comm):
        r = comm.rank
        group = group_of(comm, num_logical_experts=logical_experts, replica_choice=choice)
        table, counts = np.array(logical[0], np.int32), np.array(copies[0], np.int32)
        group.set_expert_map(table, counts)
        physical = [[taken(r, t, e) for e in row if e >= 0] for t, row in enumerate(world.ids[r])]
        per_expert, per_logical = np.zeros(E, np.int64), np.zeros(logical_experts, np.int32)
        group.routing_counts(world.ids[r], tokens_per_expert=per_expert, tokens_per_logical_expert=per_logical)
        comm.synchronize()
        chosen = [e for row in physical for e in row]
        assert per_expert.tolist() == [chosen.count(e) for e in range(E)]
        assert per_logical.tolist() == [(world.ids[r] == e).sum() for e in range(logical_experts)]

        # Whichever copy has it, a token comes back once from each of its experts.
        handle = group.handle(Layout.FLAT)
        total = np.zeros(1, np.int32)
        handle.update(world.ids[r], counters={"recv_total": total})
        comm.synchronize()
        rows, back = np.zeros((total[0], H), np.float32), np.zeros((world.tokens[r], H), np.float32)
        handle.dispatch(world.x[r], rows)
        handle.combine(rows, back)
        comm.synchronize()
        ranks_of = [len({e // L for e in row}) for row in physical]
        np.testing.assert_allclose(back, world.x[r] * np.array(ranks_of)[:, None], rtol=1e-6)

        group.set_expert_map(None, None)
        group.routing_counts(world.ids[r], tokens_per_expert=per_expert)
        comm.synchronize()
        assert per_expert.tolist() == [(world.ids[r] == e).sum() for e in range(E)]
        with pytest.raises(ucclep.InvalidArgument, match="copies is NULL"):
            group.set_expert_map(table, None)
    ranks(R, rank_main)


def test_many_handles_in_one_stream(ranks):
    world = World(4)

    def rank_main(comm):
        r, group = comm.rank, group_of(comm)
        with comm.stream() as stream:
            for _ in range(5):
                with group.handle(Layout.FLAT) as handle:
                    rows = np.zeros((R * B, H), np.float32)
                    result = np.zeros((world.tokens[r], H), np.float32)
                    handle.dispatch(world.x[r], rows, topk_idx=world.ids[r], stream=stream)
                    handle.combine(rows, result, stream=stream)
                    stream.synchronize()
                dropped = group.handle(Layout.FLAT)
                del dropped
            assert len(group.dropped) == 1
        group.destroy()
    ranks(R, rank_main)


def test_graphs(ranks):
    """A replay takes the routing and the rows that lie in the tensors then."""
    worlds = [World(5), World(6)]

    def rank_main(comm):
        r, group = comm.rank, group_of(comm)
        handle = group.handle(Layout.EXPERT_MAJOR, Mode.LL)
        x, ids, weights = (np.zeros_like(of[r]) for of in (worlds[0].x, worlds[0].ids, worlds[0].weights))
        rows, result = np.zeros((L, R * B, H), np.float32), np.zeros_like(x)
        with comm.stream() as stream:
            with comm.graph(stream) as graph:
                handle.dispatch(x, rows, topk_idx=ids, topk_weights=weights, stream=stream)
                handle.combine(rows, result, stream=stream)
            for world in worlds * 2:
                x[:], ids[:], weights[:] = world.x[r], world.ids[r], world.weights[r]
                graph.launch(stream)
                stream.synchronize()
                expected = np.where(ids >= 0, weights, 0).sum(axis=1, keepdims=True) * x
                np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
            graph.destroy()
    ranks(R, rank_main)


def test_backward(ranks):
    """Gradients of rows and of their weights come back to the tokens, plainly summed."""
    world = World(7)

    def rank_main(comm):
        r, group = comm.rank, group_of(comm)
        handle = group.handle(Layout.FLAT)
        handle.update(world.ids[r])
        total, _ = handle.wait_counts()
        rows, weights = np.zeros((total, H), np.float32), np.zeros((total, K), np.float32)
        handle.dispatch(world.x[r], rows, topk_weights=world.weights[r], out_topk_weights=weights)
        x, w = np.zeros_like(world.x[r]), np.zeros_like(world.weights[r])
        handle.combine(rows, x, topk_weights=weights, out_topk_weights=w, backward=True)
        again = np.zeros_like(rows)
        handle.dispatch(world.x[r], again, backward=True)
        comm.synchronize()
        places = [len({e // L for e in ids if e >= 0}) for ids in world.ids[r]]
        np.testing.assert_allclose(x, np.array(places)[:, None] * world.x[r], rtol=1e-5, atol=1e-6)
        assert (w == np.where(world.ids[r] >= 0, world.weights[r], 0)).all() and (again == rows).all()
    ranks(R, rank_main)


def test_memory_of_handles(ranks):
    """A handle goes on with the routing that another one left in its memory."""
    world = World(8)

    def rank_main(comm):
        r, group = comm.rank, group_of(comm)
        memory = np.zeros(group.handle_mem_size(Layout.FLAT), np.uint8)
        rows = [np.zeros((R * B, H), np.float32) for _ in range(2)]
        with group.handle(Layout.FLAT, memory=memory) as first:
            first.update(world.ids[r])
            first.dispatch(world.x[r], rows[0])
            comm.synchronize()
        with group.handle(Layout.FLAT, memory=memory) as second:
            second.dispatch(world.x[r], rows[1])
            comm.synchronize()
        assert (rows[0] == rows[1]).all() and rows[0].any()
    ranks(R, rank_main)


def test_errors_of_operations(ranks):
    def rank_main(comm):
        group = group_of(comm)
        handle = group.handle(Layout.FLAT)
        x = np.zeros((1, H), np.float32)
        with pytest.raises(ucclep.InvalidUsage, match="no routing"):
            handle.dispatch(x, x)
        with pytest.raises(ucclep.InvalidArgument, match="inputs.tokens"):
            handle.dispatch(None, x, topk_idx=np.zeros((1, K), np.int64))
        with pytest.raises(TypeError, match="no_such_count"):
            handle.update(np.zeros((1, K), np.int64), counters={"no_such_count": x})
        with pytest.raises(ucclep.NotSupported, match="RANK_MAJOR"):
            group.handle(Layout.RANK_MAJOR, Mode.HT)
    ranks(2, rank_main)


def test_an_id_out_of_range_is_recorded(ranks):
    def rank_main(comm):
        handle = group_of(comm).handle(Layout.FLAT)
        rows = np.zeros((R * B, H), np.float32)
        handle.dispatch(np.zeros((1, H), np.float32), rows, topk_idx=np.array([[0, E, 1]]))
        comm.synchronize()
        with pytest.raises(ucclep.InvalidArgument):
            comm.check_async_error()
        comm.clear_async_error()
        comm.check_async_error()
    ranks(R, rank_main)
