# SPDX-License-Identifier: Apache-2.0
"""Many nodes: one rank, which receives what it sends, as all ranks do alike when routing is uniform. Incast is not seen by it.

The network is that of perf/model.py: alpha us until something arrives, then messages and bytes at their cost. It carries a row's copies
as the library does; within the node rows take NVLink, on the same port.
"""
import collections

from calibration import network, networks, our_machine
from layer import Layer
from shapes import MODELS, draw_routing
from systems import HARDWARE, IDEAL, MEDIATED, MEDIATION_US, SOFTWARE

PER_NODE = 8
TOKENS_OF = {"ll": 128, "ht": 4096}
CHUNK = {"ll": 32 * 1024, "ht": 256 * 1024}

Network = collections.namedtuple("Network", "latency row_us")  # row_us: {"dispatch": us of a row on the wire, "combine": ..}


def network_of(nic, mode, model, ranks, error=0.0):
    """Times of perf/model.py were wrong by `error` (predicted over published, less 1): the network is slower or faster by that."""
    constants = networks()[0][nic, mode]
    if constants.alpha < 0:
        raise ValueError(f"{nic} {mode}: alpha is {constants.alpha:.0f} us, the fit does not describe this network")
    shape = network.Shape(TOKENS_OF[mode], model.hidden, model.experts, model.topk, ranks, PER_NODE)
    rows = shape.tokens * shape.topk * (ranks - PER_NODE) / ranks
    row_us = {}
    for operation in ("dispatch", "combine"):
        traffic = network.our_traffic(shape, mode, operation, "bf16", "rank", CHUNK[mode])
        row_us[operation] = (traffic.messages * constants.cost + traffic.bytes / constants.bandwidth) / rows / (1 + error)
    return Network(constants.alpha / (1 + error), row_us)


class Mirror(Layer):
    def __init__(self, system, model, machine, ranks, tokens, across):
        self.across = across
        self.virtual = ranks
        super().__init__(system, model, machine, draw_routing(model, tokens, 1), ranks)

    def _expect(self):
        expected = [[0] * (self.model.experts // self.virtual) for _ in range(self.system.chunks)]
        for b in self.batches[0]:
            expected[b.chunk][b.expert] += b.rows
        return [expected]

    def rank(self, index):
        return self.ranks_of[0]

    def wire_time(self, batch):
        if max(batch.source, batch.target) < PER_NODE:
            return super().wire_time(batch)
        return batch.rows * self.across.row_us["combine" if batch.chunk < 0 else "dispatch"] / self.system.share

    def travel(self, batch):
        back, peer = batch.chunk < 0, batch.target
        latency = self.machine.link.latency if peer < PER_NODE else self.across.latency
        batch = batch._replace(source=peer, target=0)
        self.clock.at(self.clock.now + latency, self.ranks_of[0].come_back if back else self.ranks_of[0].arrive, batch)


def layer_across(system, nic, mode, nodes, error=0.0):
    """DeepSeek-V3 with an expert for each rank at least."""
    ranks = nodes * PER_NODE
    model = MODELS["DeepSeek-V3"]
    model = model._replace(experts=max(model.experts, ranks))
    across = network_of(nic, mode, model, ranks, error) if nodes > 1 else None
    if system is MEDIATED and across:
        system = system._replace(before=MEDIATION_US + across.latency)  # counts cross the network before rows do
    return Mirror(system, model, our_machine(), ranks, TOKENS_OF[mode], across).run()


def projections(nics=("cx7", "efa-p5en"), all_nodes=(16, 32, 64, 128)):
    constants, errors = networks()
    for mode in ("ll", "ht"):
        yield projection("nvlink", mode, 1, [0.0])
        for nic in nics:
            for nodes in all_nodes:
                yield projection(nic, mode, nodes, errors[nic, mode]) | {
                    "at_line_rate": constants[nic, mode].bandwidth >= network.LINE_RATE}


def projection(nic, mode, nodes, errors):
    us = {s.name: layer_across(s, nic, mode, nodes).layer for s in (MEDIATED, SOFTWARE, HARDWARE, IDEAL)}
    least, most = (layer_across(SOFTWARE, nic, mode, nodes, e).layer for e in (max(*errors, 0), min(*errors, 0)))
    return {"nic": nic, "mode": mode, "nodes": nodes, "ranks": nodes * PER_NODE, "us": us, "software_least_us": least, "software_most_us": most,
            "network_errors": [min(*errors, 0), max(*errors, 0)]}
