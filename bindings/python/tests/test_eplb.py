# SPDX-License-Identifier: Apache-2.0
"""ucclep.eplb: published figures, and what every plan has to be."""
import random

import pytest
from ucclep.eplb import device_loads, rebalance_experts

# The example that DeepSeek publishes with EPLB: two layers of 12 experts in 4 groups, 16 places on 8 devices of 2 nodes.
LOADS = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]
PLAN = [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1], [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]
SHAPES = [(16, 32, 4, 2, 8), (256, 288, 8, 4, 32), (256, 288, 8, 3, 36), (64, 64, 8, 2, 8), (8, 64, 1, 1, 64), (60, 80, 5, 5, 10)]


def test_the_published_example():
    physical, logical, copies = rebalance_experts(LOADS, 16, 4, 2, 8)
    assert physical == PLAN
    assert copies == [[plan.count(e) for e in range(12)] for plan in PLAN]
    assert logical[0][5] == [0, 2] and logical[0][6] == [1, -1]
    # Experts 0 and half of 1 are the most of the first layer, halves of 6 and of 8 of the second.
    assert [max(layer) for layer in device_loads(LOADS, physical, 8)] == [90 + 132 / 2, 187 / 2 + 172 / 2]


def skewed(experts, seed):
    """A few experts have most of the work."""
    draw = random.Random(seed)
    return [[draw.paretovariate(1.1) for _ in range(experts)] for _ in range(3)]


@pytest.mark.parametrize("experts, replicas, groups, nodes, gpus", SHAPES)
def test_every_plan(experts, replicas, groups, nodes, gpus):
    loads = skewed(experts, experts + gpus)
    physical, logical, copies = rebalance_experts(loads, replicas, groups, nodes, gpus)
    for plan, places, counts in zip(physical, logical, copies):
        assert len(plan) == replicas and set(plan) == set(range(experts))
        assert sum(counts) == replicas and min(counts) >= 1
        for e in range(experts):
            assert places[e] == [slot for slot in range(replicas) if plan[slot] == e] + [-1] * (len(places[e]) - counts[e])
        if groups % nodes == 0:  # a group stays within a node
            size = replicas // nodes
            of_node = [{plan[i] * groups // experts for i in range(n * size, (n + 1) * size)} for n in range(nodes)]
            assert sum(map(len, of_node)) == groups
    assert max(len(row) for plan in logical for row in plan) == max(max(counts) for counts in copies)
    # No layer is worse than experts in their order, and copies of the busiest take work from it.
    in_order = [[e * experts // replicas for e in range(replicas)]] * 3
    for before, after in zip(device_loads(loads, in_order, gpus), device_loads(loads, physical, gpus)):
        assert max(after) <= max(before) * (1 + 1e-9)
        assert sum(after) == pytest.approx(sum(before))


def test_skew_is_taken_away():
    loads = skewed(256, 7)
    physical, _, _ = rebalance_experts(loads, 320, 1, 1, 32)
    for after in device_loads(loads, physical, 32):
        assert max(after) < 1.35 * sum(after) / 32
    assert max(max(layer) / (sum(layer) / 32) for layer in loads) > 3  # one expert alone has more than three devices' share


def test_experts_without_work_have_places():
    physical, _, copies = rebalance_experts([[0.0] * 8], 16, 1, 1, 4)
    assert sorted(set(physical[0])) == list(range(8)) and sum(copies[0]) == 16
    assert rebalance_experts([], 4, 1, 1, 2)[0] == []


def test_tensors_of_either_kind():
    numpy = pytest.importorskip("numpy")
    results = rebalance_experts(numpy.array(LOADS), 16, 4, 2, 8)
    assert all(isinstance(result, numpy.ndarray) and result.dtype == numpy.int64 for result in results)
    assert results[0].tolist() == PLAN and results[1].shape == (2, 12, 2)
    torch = pytest.importorskip("torch")
    results = rebalance_experts(torch.tensor(LOADS), 16, 4, 2, 8)
    assert all(result.dtype == torch.int64 and result.device.type == "cpu" for result in results)
    assert results[0].tolist() == PLAN and device_loads(torch.tensor(LOADS), results[0], 8)[0][0] == pytest.approx(121.5)


@pytest.mark.parametrize("arguments, words", [
    ((LOADS, 8, 4, 2, 8), "num_replicas is 8, expected at least the 12 experts"),
    ((LOADS, 18, 4, 2, 8), "num_replicas is 18, expected a multiple of num_gpus = 8"),
    ((LOADS, 15, 4, 2, 5), "num_gpus is 5, expected a multiple of num_nodes = 2"),
    ((LOADS, 16, 5, 1, 8), "the number of experts is 12, expected a multiple of num_groups = 5"),
    ((LOADS, 16, 4, 0, 8), "num_nodes is 0, expected at least 1"),
    (([[1, 2], [1]], 2, 1, 1, 1), r"layers of \[1, 2\] experts, expected the same number"),
    (([[1, 2], [1, -1]], 2, 1, 1, 1), r"weight\[1\] has a load that is negative or not a number"),
    (([[1, float("nan")]], 2, 1, 1, 1), r"weight\[0\] has a load that is negative or not a number")])
def test_what_cannot_be_planned(arguments, words):
    with pytest.raises(ValueError, match=words):
        rebalance_experts(*arguments)
