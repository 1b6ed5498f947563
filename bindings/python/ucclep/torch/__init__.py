# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine as operations of torch, with gradients.

    rows, row_weights, routing = ucclep.torch.dispatch(group, x, topk_idx, topk_weights)
    rows = experts(rows, routing.tokens_per_expert) * row_weights[:, None]
    y = ucclep.torch.combine(rows, routing)

Rows lie by local expert (Layout.EXPERT_MAJOR): one for each token and expert. Gradients of rows and of row_weights come
back to the ranks of the tokens. All ranks call the same functions in the same order, forward and backward. Operations
run on torch's current stream; on the host device, which has no streams of torch's, they have ended when a call returns.

From torch 2.4 on they are custom ops: torch.compile takes them into its graph (fullgraph=True). How many rows come is known
only when they are counted, so the CPU waits; with `max_rows` it does not, and CUDA graphs can be captured.
"""
from __future__ import annotations

import torch

from ..group import Group
from .mem_pool import MemPool
from .operations import _combine, _dispatch
from .routing import Routing

__all__ = ["MemPool", "Routing", "combine", "dispatch"]


def dispatch(group: Group, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, expert_alignment: int = 1,
             max_rows: int | None = None) -> tuple[torch.Tensor, torch.Tensor, Routing]:
    """Sends each row of x [T, H] to its experts: (rows [N, H], row_weights [N], routing).

    routing.counts rows of each local expert follow each other; with `expert_alignment` they are padded by zero rows. With
    `max_rows` there are so many rows, those beyond the last expert's are zero, and the CPU does not wait.
    """
    rows, row_weights, counts, ticket = _dispatch(x, topk_idx, topk_weights, group.name, expert_alignment, max_rows)
    return rows, row_weights, Routing(ticket, counts, x.shape[0], rows.shape[0])


def combine(rows: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Sums the rows of each token: [T, H]. Who wants weighted sums multiplies by row_weights before."""
    return _combine(rows, routing.ticket, routing.num_tokens)
