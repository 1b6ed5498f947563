# SPDX-License-Identifier: Apache-2.0
"""The operations on tensors alone: dispatch, combine, and their gradients, each of which is the other one's operation."""
from __future__ import annotations

from typing import Any

import torch

from ..group import Group, named
from .operator import operator
from .routing import Routed
from .ticket import holder_of, ticket_of


def _stream(tensor: torch.Tensor) -> int | None:
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None


def _ended(tensor: torch.Tensor, group: Group) -> None:
    if not tensor.is_cuda:
        group.comm.synchronize()


def _rows_like(tensor: torch.Tensor, routed: Routed, *sizes: int) -> torch.Tensor:
    """Room for rows; zero where not all of them have to come."""
    return (tensor.new_zeros if routed.tokens_per_expert is None else tensor.new_empty)(sizes)


# ---- the gradient of dispatch brings rows back, as combine does ----

def _fake_dispatch_gradient(grad_rows, grad_row_weights, ticket, num_tokens, top_k) -> tuple:
    return grad_rows.new_empty((num_tokens, grad_rows.shape[1])), grad_row_weights.new_empty((num_tokens, top_k))


@operator("(Tensor grad_rows, Tensor grad_row_weights, Tensor ticket, SymInt num_tokens, SymInt top_k) -> (Tensor, Tensor)",
          _fake_dispatch_gradient)
def dispatch_gradient(grad_rows: torch.Tensor, grad_row_weights: torch.Tensor, ticket: torch.Tensor, num_tokens: int,
                      top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    routed: Routed = holder_of(ticket)
    grad_rows, grad_row_weights = grad_rows.contiguous(), grad_row_weights.contiguous()
    grad_x = grad_rows.new_empty((num_tokens, grad_rows.shape[1]))
    grad_weights = grad_row_weights.new_empty((num_tokens, top_k))
    routed.handle.combine(grad_rows, grad_x, topk_weights=grad_row_weights, out_topk_weights=grad_weights, backward=True,
                          stream=_stream(grad_rows))
    _ended(grad_rows, routed.group)
    return grad_x, grad_weights


def _keep_of_dispatch(ctx: Any, inputs: tuple, output: tuple) -> None:
    x, _, topk_weights, *_ = inputs
    ctx.save_for_backward(output[3])
    ctx.num_tokens, ctx.top_k = x.shape[0], topk_weights.shape[1]


def _dispatch_backward(ctx: Any, grad_rows: torch.Tensor, grad_row_weights: torch.Tensor, *_: Any) -> tuple:
    ticket, = ctx.saved_tensors
    grad_x, grad_weights = dispatch_gradient(grad_rows, grad_row_weights, ticket, ctx.num_tokens, ctx.top_k)
    return grad_x, None, grad_weights, None, None, None


def _fake_dispatch(x, topk_idx, topk_weights, group, expert_alignment, max_rows) -> tuple:
    num_rows = torch.library.get_ctx().new_dynamic_size() if max_rows is None else max_rows
    return (x.new_empty((num_rows, x.shape[1])), topk_weights.new_empty(num_rows),
            x.new_empty(named(group).num_local_experts, dtype=torch.int64), torch.empty(1, dtype=torch.int64))


@operator("(Tensor x, Tensor topk_idx, Tensor topk_weights, str group, int expert_alignment, SymInt? max_rows) -> "
          "(Tensor rows, Tensor row_weights, Tensor counts, Tensor ticket)", _fake_dispatch, _keep_of_dispatch, _dispatch_backward)
def _dispatch(x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, group: str, expert_alignment: int,
              max_rows: int | None) -> tuple:
    captured = x.is_cuda and torch.cuda.is_current_stream_capturing()
    routed = Routed(named(group), expert_alignment, captured)
    x, topk_weights, stream = x.contiguous(), topk_weights.contiguous(), _stream(x)
    counts = x.new_empty(routed.group.num_local_experts, dtype=torch.int64)
    routed.handle.update(topk_idx.contiguous(), counters={"tokens_per_expert": counts}, stream=stream)
    num_rows = max_rows
    if max_rows is None:
        num_rows, routed.tokens_per_expert = routed.handle.wait_counts()
    rows = _rows_like(x, routed, num_rows, x.shape[1])
    row_weights = _rows_like(topk_weights, routed, num_rows)
    routed.handle.dispatch(x, rows, topk_weights=topk_weights, out_topk_weights=row_weights, stream=stream)
    _ended(x, routed.group)
    return rows, row_weights, counts, ticket_of(routed)


# ---- the gradient of combine sends rows, as dispatch does ----

def _fake_combine_gradient(grad_y, ticket, num_rows) -> torch.Tensor:
    return grad_y.new_empty((num_rows, grad_y.shape[1]))


@operator("(Tensor grad_y, Tensor ticket, SymInt num_rows) -> Tensor", _fake_combine_gradient)
def combine_gradient(grad_y: torch.Tensor, ticket: torch.Tensor, num_rows: int) -> torch.Tensor:
    routed: Routed = holder_of(ticket)
    grad_y = grad_y.contiguous()
    grad_rows = _rows_like(grad_y, routed, num_rows, grad_y.shape[1])
    routed.handle.dispatch(grad_y, grad_rows, backward=True, stream=_stream(grad_y))
    _ended(grad_y, routed.group)
    return grad_rows


def _keep_of_combine(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    rows, ticket, _ = inputs
    ctx.save_for_backward(ticket)
    ctx.num_rows = rows.shape[0]


def _combine_backward(ctx: Any, grad_y: torch.Tensor) -> tuple:
    ticket, = ctx.saved_tensors
    return combine_gradient(grad_y, ticket, ctx.num_rows), None, None


def _fake_combine(rows, ticket, num_tokens) -> torch.Tensor:
    return rows.new_empty((num_tokens, rows.shape[1]))


@operator("(Tensor rows, Tensor ticket, SymInt num_tokens) -> Tensor", _fake_combine, _keep_of_combine, _combine_backward)
def _combine(rows: torch.Tensor, ticket: torch.Tensor, num_tokens: int) -> torch.Tensor:
    routed: Routed = holder_of(ticket)
    rows = rows.contiguous()
    y = rows.new_empty((num_tokens, rows.shape[1]))
    routed.handle.combine(rows, y, stream=_stream(rows))
    _ended(rows, routed.group)
    return y
