# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of a dispatch went, and how a graph of torch's hands that on: as a tensor."""
from __future__ import annotations

import torch

from ..enums import Layout, Mode
from ..group import Group
from ..handle import Handle
from ..pool import HandlePool
from .ticket import holder_of

_handles = HandlePool()


class Routed:
    """A handle with its routing; the handle is used again when nobody holds this any more."""

    def __init__(self, group: Group, expert_alignment: int, captured: bool):
        if captured and not _handles.has(group, Layout.EXPERT_MAJOR, Mode.HT, expert_alignment=expert_alignment):
            raise RuntimeError("dispatch cannot allocate a routing while a graph is being captured: run the same calls once "
                               "before the capture")
        self.group = group
        self._lease = _handles.lease(group, Layout.EXPERT_MAJOR, Mode.HT, expert_alignment=expert_alignment)
        if captured:
            self._lease.keep()  # replays use it
        #: Rows of each local expert, where the CPU waited for them.
        self.tokens_per_expert: list[int] | None = None

    @property
    def handle(self) -> Handle:
        return self._lease.handle


class Routing:
    """Where the tokens of a dispatch went."""

    def __init__(self, ticket: torch.Tensor, counts: torch.Tensor, num_tokens: int, num_rows: int):
        self.ticket = ticket
        #: int64 [L], on the device: rows of each local expert, padding included.
        self.counts = counts
        self.num_tokens = num_tokens
        #: Rows in all, those beyond the last expert's included.
        self.num_rows = num_rows

    @property
    def tokens_per_expert(self) -> list[int]:
        """`counts` as a list. With `max_rows` this waits for the device; inside of torch.compile take `counts`."""
        known = holder_of(self.ticket).tokens_per_expert
        return self.counts.tolist() if known is None else known
