# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine as autograd functions of torch.

    rows, row_weights, routing = ucclep.torch.dispatch(group, x, topk_idx, topk_weights)
    rows = experts(rows, routing.tokens_per_expert) * row_weights[:, None]
    y = ucclep.torch.combine(rows, routing)

Rows lie by local expert (Layout.EXPERT_MAJOR): one for each token and expert. Gradients of rows and of row_weights come
back to the ranks of the tokens. All ranks call the same functions in the same order, forward and backward. Operations
run on torch's current stream; on the host device, which has no streams of torch's, they have ended when a call returns.
"""
from __future__ import annotations

from typing import Any

import torch

from .enums import Layout, Mode
from .group import Group
from .pool import HandlePool

_handles = HandlePool()

# torch.compile breaks its graph here: how many rows come is known only when they are counted.
_eager = torch.compiler.disable if hasattr(torch, "compiler") else lambda function: function


class Routing:
    """Where the tokens of a dispatch went."""

    def __init__(self, group: Group, topk_idx: torch.Tensor, expert_alignment: int):
        self._lease = _handles.lease(group, Layout.EXPERT_MAJOR, Mode.HT, expert_alignment=expert_alignment)
        self.handle = self._lease.handle
        self.group = group
        self.num_tokens, self.top_k = topk_idx.shape
        self.handle.update(topk_idx, stream=_stream(topk_idx))
        #: Rows received in all, and of each local expert, padding included.
        self.num_rows, self.tokens_per_expert = self.handle.wait_counts()


def _stream(tensor: torch.Tensor) -> int | None:
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None


def _ended(tensor: torch.Tensor, group: Group) -> None:
    if not tensor.is_cuda:
        group.comm.synchronize()


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, topk_weights: torch.Tensor, routing: Routing) -> tuple:
        ctx.routing = routing
        x, topk_weights = x.contiguous(), topk_weights.contiguous()
        rows = x.new_empty((routing.num_rows, x.shape[1]))
        row_weights = topk_weights.new_empty(routing.num_rows)
        routing.handle.dispatch(x, rows, topk_weights=topk_weights, out_topk_weights=row_weights, stream=_stream(x))
        _ended(x, routing.group)
        return rows, row_weights

    @staticmethod
    def backward(ctx: Any, grad_rows: torch.Tensor, grad_row_weights: torch.Tensor) -> tuple:
        routing = ctx.routing
        grad_rows, grad_row_weights = grad_rows.contiguous(), grad_row_weights.contiguous()
        grad_x = grad_rows.new_empty((routing.num_tokens, grad_rows.shape[1]))
        grad_weights = grad_row_weights.new_empty((routing.num_tokens, routing.top_k))
        routing.handle.combine(grad_rows, grad_x, topk_weights=grad_row_weights, out_topk_weights=grad_weights,
                               backward=True, stream=_stream(grad_rows))
        _ended(grad_rows, routing.group)
        return grad_x, grad_weights, None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, routing: Routing) -> torch.Tensor:
        ctx.routing = routing
        rows = rows.contiguous()
        y = rows.new_empty((routing.num_tokens, rows.shape[1]))
        routing.handle.combine(rows, y, stream=_stream(rows))
        _ended(rows, routing.group)
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor) -> tuple:
        routing = ctx.routing
        grad_y = grad_y.contiguous()
        grad_rows = grad_y.new_empty((routing.num_rows, grad_y.shape[1]))
        routing.handle.dispatch(grad_y, grad_rows, backward=True, stream=_stream(grad_y))
        _ended(grad_y, routing.group)
        return grad_rows, None


@_eager
def dispatch(group: Group, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
             expert_alignment: int = 1) -> tuple[torch.Tensor, torch.Tensor, Routing]:
    """Sends each row of x [T, H] to its experts: (rows [N, H], row_weights [N], routing).

    routing.tokens_per_expert rows of each local expert follow each other; with `expert_alignment` they are padded by zero
    rows. The CPU waits until the number of rows is known.
    """
    routing = Routing(group, topk_idx, expert_alignment)
    rows, row_weights = _Dispatch.apply(x, topk_weights, routing)
    return rows, row_weights, routing


@_eager
def combine(rows: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Sums the rows of each token: [T, H]. Who wants weighted sums multiplies by row_weights before."""
    return _Combine.apply(rows, routing)
