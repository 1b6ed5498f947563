# SPDX-License-Identifier: Apache-2.0
"""A receiver's counters: rows get places when they come, and full tiles are passed on."""
from shapes import TILE_ROWS


class Tile:
    __slots__ = ("expert", "chunk", "rows", "parts", "started", "left")

    def __init__(self, expert, chunk):
        self.expert, self.chunk = expert, chunk
        self.rows = 0
        self.parts = []  # [(source, rows)]
        self.started = self.left = 0  # thread blocks of the GEMM that runs


class Counters:
    """`expected[chunk][expert]` rows come. `ready(tile)` is called for full tiles, and for those that are not full when an expert's
    rows are there (`by_expert`: its sources close each expert) or when all rows of the chunk are."""

    def __init__(self, expected, by_expert, ready):
        self._left = [list(experts) for experts in expected]
        self._open = [[None] * len(experts) for experts in expected]
        self._partial = [[] for _ in expected]
        self._by_expert = by_expert
        self._ready = ready
        self.tiles = [sum(-(-rows // TILE_ROWS) for rows in experts) for experts in expected]

    def add(self, batch):
        chunk, expert, rows = batch.chunk, batch.expert, batch.rows
        self._left[chunk][expert] -= rows
        while rows:
            tile = self._open[chunk][expert] = self._open[chunk][expert] or Tile(expert, chunk)
            taken = min(rows, TILE_ROWS - tile.rows)
            tile.rows += taken
            tile.parts.append((batch.source, taken))
            rows -= taken
            if tile.rows == TILE_ROWS:
                self._open[chunk][expert] = None
                self._ready(tile)
        if self._left[chunk][expert] == 0 and self._open[chunk][expert]:
            tile, self._open[chunk][expert] = self._open[chunk][expert], None
            self._ready(tile) if self._by_expert else self._partial[chunk].append(tile)
        if not any(self._left[chunk]):
            partial, self._partial[chunk] = self._partial[chunk], []
            for tile in partial:
                self._ready(tile)
