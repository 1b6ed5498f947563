# SPDX-License-Identifier: Apache-2.0
"""A MoE layer on all ranks: routing, dispatch, two GEMMs, combine, scaling."""
import collections
import random

from events import Clock, Egress, Server
from pool import Gemm, Pool
from shapes import Batch, batches_of, by_rows, by_waves, mixed
from systems import LAUNCH_US
from tiles import Counters

# us: the layer, from the end of routing to the end of GEMM 1, to the last row's arrival; and how many events it took.
Times = collections.namedtuple("Times", "layer window dispatch events")


class Rank:
    def __init__(self, layer, index):
        self.layer, self.index = layer, index
        clock, machine, system = layer.clock, layer.machine, layer.system
        expected = layer.expected(index)
        self.counters = Counters(expected, system.order == "waves", self.tile_ready)
        self.left = [[n, n] for n in self.counters.tiles]  # tiles of a chunk that GEMM 1 and 2 have not ended
        self.held = [[] for _ in expected]                 # tiles that wait for the rest of their chunk
        self.egress = Egress(clock, layer.wire_time, layer.travel, self.all_sent)
        self.ingress = Server(clock, 1)  # its work is time on the wire
        self.hub = Server(clock, 1 / system.row_us if system.row_us else 0)
        sms = machine.gpu.sms - system.sms
        self.pool = Pool(clock, layer.gpu, layer.gemms, sms, self.gemm_done)
        self.missing = sum(layer.counts[index])
        self.returned_at = self.first_gemm = self.arrived = layer.start

    # ---- Producer: rows leave in the order of the policy ----

    def produce(self):
        layer, system = self.layer, self.layer.system
        rng = random.Random(self.index)
        policy = by_waves if system.order == "waves" else by_rows
        for chunk in range(system.chunks):
            batches = policy((b for b in layer.batches[self.index] if b.chunk == chunk), self.index, layer.ranks, rng)
            for batch in mixed(batches, system.window) if system.window else batches:
                self.send(batch)
        if self.layer.ranks == 1:
            self.all_sent()

    def send(self, batch):
        if not self.layer.system.communicates or batch.target == self.index:
            self.layer.rank(batch.target).here(batch, self.layer.clock.now)
        else:
            self.egress.push(batch, back=False)

    def all_sent(self):
        if self.layer.system.sms and not self.layer.system.keeps_sms:
            self.pool.add_sms(self.layer.system.sms)

    # ---- Receiver: ports, hub, counters ----

    def arrive(self, batch):
        """The last byte is at the port. Its first came as much earlier as the port needs for all, if nothing else was in the way."""
        wire = self.layer.wire_time(batch)
        if batch.window is not None:
            batch.window.left -= 1
        self.here(batch, self.ingress.serve(wire, self.layer.clock.now - wire))

    def here(self, batch, end):
        """All bytes at `end`; whole with the last batch of its window."""
        waiting = [(self, end, batch)]
        if batch.window is not None:
            batch.window.waiting += waiting
            waiting, batch.window.waiting = (batch.window.waiting, []) if batch.window.left == 0 else ([], batch.window.waiting)
        for rank, whole, other in waiting:
            self.layer.clock.at(max(whole, end), rank.take, other)

    def take(self, batch):
        self.layer.clock.at(self.hub.serve(batch.rows), self.count, batch)

    def count(self, batch):
        self.arrived = self.layer.clock.now
        self.counters.add(batch)

    def tile_ready(self, tile):
        system, clock = self.layer.system, self.layer.clock
        if system.tiles:
            clock.at(clock.now + system.signal_us, self.pool.submit, tile, 0)
            return
        self.hold(tile, 0, system.gap + self.pass_us(tile.chunk, system.passes[1]))

    def hold(self, tile, gemm, after):
        """Until the chunk has all its tiles: then they are submitted to the GEMM, or, after the last GEMM, sent back."""
        held = self.held[tile.chunk]
        held.append(tile)
        if len(held) == self.counters.tiles[tile.chunk]:
            self.held[tile.chunk] = []
            clock = self.layer.clock
            for ready in held:
                clock.at(clock.now + after, self.send_back if gemm == 2 else self.pool.submit, ready, *([] if gemm == 2 else [gemm]))

    def pass_us(self, chunk, passes):
        rows = sum(self.layer.expected(self.index)[chunk])
        return passes * 2 * rows * self.layer.row_bytes / self.layer.gpu.memory

    # ---- GEMMs and combine ----

    def gemm_done(self, tile, gemm):
        system, clock = self.layer.system, self.layer.clock
        if gemm == 0:
            self.first_gemm = clock.now
        if not system.tiles:
            self.hold(tile, gemm + 1, system.gap + (self.pass_us(tile.chunk, system.passes[2]) if gemm else 0))
        elif gemm == 0:
            self.pool.submit(tile, 1)
        else:
            self.send_back(tile)

    def send_back(self, tile):
        for source, rows in tile.parts:
            batch = Batch(self.index, source, tile.expert, rows, -1, None)
            if batch.target == self.index or not self.layer.system.communicates:
                self.layer.rank(batch.target).returned(rows)
            else:
                self.egress.push(batch, back=True)

    def come_back(self, batch):
        wire = self.layer.wire_time(batch)
        self.layer.clock.at(self.ingress.serve(wire, self.layer.clock.now - wire), self.returned, batch.rows)

    def returned(self, rows):
        self.missing -= rows
        if self.missing == 0:
            self.returned_at = self.layer.clock.now


class Layer:
    """`machine`: gpu, link. `counts[source][expert]`: rows."""

    def __init__(self, system, model, machine, counts, ranks=None):
        self.system, self.model, self.machine, self.counts = system, model, machine, counts
        self.clock = Clock()
        self.ranks = ranks or len(counts)
        self.row_bytes = 2 * model.hidden
        self.gpu = machine.gpu._replace(flops=machine.gpu.flops / system.slower)
        self.gemms = Gemm(self.gpu, 2 * model.intermediate, model.hidden), Gemm(self.gpu, model.hidden, model.intermediate)
        self.batches = [list(batches_of(s, c, self.ranks, system.chunks)) for s, c in enumerate(counts)]
        self._expected = self._expect()
        tokens = sum(counts[0]) / model.topk
        self.start = tokens * self.row_bytes / self.gpu.memory + LAUNCH_US
        self.scale = tokens * (model.topk + 1) * self.row_bytes / self.gpu.memory + LAUNCH_US
        self.ranks_of = [Rank(self, r) for r in range(len(counts))]

    def _expect(self):
        per_rank = self.model.experts // self.ranks
        expected = [[[0] * per_rank for _ in range(self.system.chunks)] for _ in range(self.ranks)]
        for batches in self.batches:
            for b in batches:
                expected[b.target][b.chunk][b.expert] += b.rows
        return expected

    def rank(self, index):
        return self.ranks_of[index]

    def expected(self, rank):
        return self._expected[rank]

    def wire_time(self, batch):
        return self.machine.link.us(batch.rows * self.row_bytes, self.system.packet) / self.system.share

    def travel(self, batch):
        rank = self.rank(batch.target)
        self.clock.at(self.clock.now + self.machine.link.latency, rank.come_back if batch.chunk < 0 else rank.arrive, batch)

    def run(self):
        for rank in self.ranks_of:
            before = self.system.before + rank.pass_us(0, self.system.passes[0])
            self.clock.at(self.start + before, rank.produce)
        self.clock.run()
        end = 0
        for rank in self.ranks_of:
            if rank.missing:
                raise RuntimeError(f"rank {rank.index} waits for {rank.missing} rows that never return")
            end = max(end, rank.returned_at + rank.pass_us(0, self.system.passes[3]))
        return Times(end + self.scale + LAUNCH_US, max(r.first_gemm for r in self.ranks_of) - self.start,
                     max(r.arrived for r in self.ranks_of) - self.start, self.clock.events)


def run_layer(system, model, machine, counts):
    return Layer(system, model, machine, counts).run()
