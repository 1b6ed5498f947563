# SPDX-License-Identifier: Apache-2.0
"""The SMs of a GPU, which run the thread blocks of the two GEMMs, and the memory that their weights come from."""
import heapq

from events import Server
from shapes import TILE_ROWS

BLOCK_COLUMNS = 256
UNITS = 16  # the thread blocks of a tile start in at most so many portions


class Gemm:
    """What a thread block of one of the two GEMMs takes."""

    def __init__(self, gpu, width, depth):
        self.blocks = -(-width // BLOCK_COLUMNS)
        self.unit = -(-self.blocks // UNITS)
        self.bytes = 2 * BLOCK_COLUMNS * depth
        self.us = {rows: gpu.block_us + 2 * rows * BLOCK_COLUMNS * depth / (gpu.flops / gpu.sms) for rows in (TILE_ROWS // 2, TILE_ROWS)}


class Pool:
    """Ready tiles by GEMM, chunk and expert; of one expert's tiles the one that is behind starts first, so they share weights in L2."""

    def __init__(self, clock, gpu, gemms, sms, done):
        self._clock = clock
        self._gemms = gemms
        self._cache = gpu.cache_bytes
        self._memory = Server(clock, gpu.memory)
        self._read = {}  # (gemm, expert, first thread block) -> bytes that memory had served when it was used last
        self._ready = []
        self._order = 0
        self._free = sms
        self._done = done

    def submit(self, tile, gemm):
        tile.started, tile.left = 0, self._gemms[gemm].blocks
        self._push(tile, gemm)
        self.add_sms(0)

    def add_sms(self, sms):
        self._free += sms
        while self._free and self._ready:
            self._start()

    def _push(self, tile, gemm):
        self._order += 1
        heapq.heappush(self._ready, (gemm, tile.chunk, tile.expert, tile.started, self._order, tile))

    def _start(self):
        gemm, _, _, _, _, tile = heapq.heappop(self._ready)
        kind = self._gemms[gemm]
        blocks = min(kind.unit, self._free, kind.blocks - tile.started)
        rows = TILE_ROWS // 2 if tile.rows <= TILE_ROWS // 2 else TILE_ROWS
        end = max(self._clock.now + kind.us[rows], self._weights(gemm, tile, blocks))
        self._free -= blocks
        tile.started += blocks
        if tile.started < kind.blocks:
            self._push(tile, gemm)
        self._clock.at(end, self._end, tile, gemm, blocks)

    def _weights(self, gemm, tile, blocks):
        """When the weights are there: now, if they were used so lately that L2 has them."""
        key = gemm, tile.expert, tile.started // self._gemms[gemm].unit
        last = self._read.get(key)
        missing = last is None or self._memory.total - last > self._cache
        here = self._memory.serve(blocks * self._gemms[gemm].bytes) if missing else 0
        self._read[key] = self._memory.total
        return here

    def _end(self, tile, gemm, blocks):
        tile.left -= blocks
        if tile.left == 0:
            self._done(tile, gemm)
        self.add_sms(blocks)
