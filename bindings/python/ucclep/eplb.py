# SPDX-License-Identifier: Apache-2.0
"""Which experts get copies, and on which device each copy lies, so that devices have equal work.

As the DeepSeek-V3 paper describes it: experts with much work get copies, and copies are packed onto devices. Where the groups
of experts can be shared out among the nodes, a group stays within one node, for tokens that choose few groups then visit
few nodes.

    physical, logical, copies = rebalance_experts(loads, num_replicas=288, num_groups=8, num_nodes=4, num_gpus=32)

A physical expert is a place for one expert's weights: num_replicas / num_gpus of them, in order, lie on each device. A
group with num_experts=288 and num_logical_experts=256 routes by such a plan, after the weights lie where it wants them:

    group.set_expert_map(logical[layer].to(device, torch.int32), copies[layer].to(device, torch.int32))
"""
from __future__ import annotations

from typing import Any, Sequence

__all__ = ["device_loads", "rebalance_experts"]


def rebalance_experts(weight: Any, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int) -> tuple:
    """(physical_to_logical [layers, num_replicas], logical_to_physical [layers, E, C], copies [layers, E]).

    `weight` [layers, E] is the work of each expert, a tensor of torch, a NumPy array, or lists; so are the results, int64. C
    is the most copies that an expert has; -1 follows the last copy of one that has fewer. The result depends on nothing but
    the arguments: each rank can compute it by itself.
    """
    layers = [[float(load) for load in layer] for layer in _lists(weight)]
    experts = len(layers[0]) if layers else 0
    if any(len(layer) != experts for layer in layers):
        raise ValueError(f"weight has layers of {sorted({len(layer) for layer in layers})} experts, expected the same number "
                         "in all layers")
    _check(layers, experts, num_replicas, num_groups, num_nodes, num_gpus)
    if num_groups % num_nodes:
        num_groups = num_nodes = 1  # groups cannot stay within nodes: one level for all devices
    physical = [_plan(layer, num_replicas, num_groups, num_nodes, num_gpus) for layer in layers]
    slots = [[[slot for slot, expert in enumerate(plan) if expert == e] for e in range(experts)] for plan in physical]
    most = max((len(of_expert) for plan in slots for of_expert in plan), default=0)
    logical = [[of_expert + [-1] * (most - len(of_expert)) for of_expert in plan] for plan in slots]
    copies = [[len(of_expert) for of_expert in plan] for plan in slots]
    return _like(weight, physical), _like(weight, logical), _like(weight, copies)


def device_loads(weight: Any, physical_to_logical: Any, num_gpus: int) -> list:
    """[layers][num_gpus]: the work of each device, if the copies of an expert share its work equally."""
    loads = []
    for layer, plan in zip(_lists(weight), _lists(physical_to_logical)):
        shares = [layer[expert] / plan.count(expert) for expert in plan]
        size = len(plan) // num_gpus
        loads.append([sum(shares[i * size:(i + 1) * size]) for i in range(num_gpus)])
    return loads


def _check(layers: list, experts: int, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int) -> None:
    least = {"num_replicas": num_replicas, "num_groups": num_groups, "num_nodes": num_nodes, "num_gpus": num_gpus}
    for name, value in least.items():
        if value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    if num_replicas < experts:
        raise ValueError(f"num_replicas is {num_replicas}, expected at least the {experts} experts of weight")
    for name, value, of, divisor in (("num_replicas", num_replicas, "num_gpus", num_gpus),
                                     ("num_gpus", num_gpus, "num_nodes", num_nodes),
                                     ("the number of experts", experts, "num_groups", num_groups)):
        if value % divisor:
            raise ValueError(f"{name} is {value}, expected a multiple of {of} = {divisor}")
    for number, layer in enumerate(layers):
        if any(not 0 <= load < float("inf") for load in layer):
            raise ValueError(f"weight[{number}] has a load that is negative or not a number, expected 0 or more")


def _plan(loads: Sequence[float], num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int) -> list:
    """The expert at each place of a layer."""
    size = len(loads) // num_groups
    groups = [range(i * size, (i + 1) * size) for i in range(num_groups)]
    plan: list = []
    for node in _packs([sum(loads[e] for e in group) for group in groups], num_nodes):
        experts = [e for group in node for e in groups[group]]
        copied = _with_copies([loads[e] for e in experts], num_replicas // num_nodes)
        shares = [loads[experts[i]] / copied.count(i) for i in copied]
        for device in _packs(shares, num_gpus // num_nodes):
            plan += [experts[copied[slot]] for slot in device]
    return plan


def _packs(loads: Sequence[float], count: int) -> list:
    """`count` packs of equally many items: the heaviest item first, each into the lightest pack that has room."""
    room = len(loads) // count
    packs: list = [[] for _ in range(count)]
    total = [0.0] * count
    for item in sorted(range(len(loads)), key=lambda item: -loads[item]):
        lightest = min((i for i in range(count) if len(packs[i]) < room), key=lambda i: total[i])
        packs[lightest].append(item)
        total[lightest] += loads[item]
    return packs


def _with_copies(loads: Sequence[float], count: int) -> list:
    """`count` items: each once, then again and again one of those whose copies have the most work."""
    items, copies = list(range(len(loads))), [1] * len(loads)
    while len(items) < count:
        busiest = max(range(len(loads)), key=lambda i: loads[i] / copies[i])
        items.append(busiest)
        copies[busiest] += 1
    return items


def _lists(array: Any) -> list:
    return array.tolist() if hasattr(array, "tolist") else list(array)


def _like(example: Any, values: list) -> Any:
    """The values as what the example is; tensors lie on the CPU."""
    if hasattr(example, "data_ptr"):
        import torch
        return torch.tensor(values, dtype=torch.int64, device="cpu")
    if hasattr(example, "__array_interface__"):
        import numpy
        return numpy.array(values, dtype=numpy.int64)
    return values
