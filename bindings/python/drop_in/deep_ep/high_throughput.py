# SPDX-License-Identifier: Apache-2.0
"""The normal mode: what the buffers have in common over HT handles."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Union

import torch
import ucclep
from ucclep import Layout, Mode
from ucclep.pool import Lease

from .groups import SHAPES, Groups
from .rows import Rows


#: Tokens of a rank in a call of a Buffer, at most. A routing takes memory for all of them.
MAX_TOKENS = 32768
#: Bytes that a group is given at least: every shape has rounds of some tokens in them.
MIN_WINDOW_BYTES = 64 << 20


class Routing:
    """Where the tokens of a dispatch went: what combine and later dispatches need of it."""

    def __init__(self, lease: Lease, group: ucclep.Group, num_tokens: int, top_k: int, device: torch.device):
        self.lease = lease
        self.group = group
        self.num_tokens = num_tokens
        self.top_k = top_k
        ranks, experts = group.comm.nranks, group.num_local_experts
        self.recv_tokens_per_rank = torch.empty(ranks, dtype=torch.int32, device=device)
        self.recv_tokens_per_expert = torch.empty(experts, dtype=torch.int32, device=device)
        self.rows = 0  # of the tensors that dispatch makes: those received, or the caller's bound

    @property
    def core(self) -> ucclep.Handle:
        handle = self.lease.handle
        if not handle.alive and self.group.comm.alive:
            raise RuntimeError(f"the handle has expired: {SHAPES} other shapes were used since its last use; use fewer shapes, "
                               "or use handles sooner")
        return handle


class HighThroughput:
    def __init__(self, comm: ucclep.Communicator, groups: Groups, streams: Any):
        self.comm = comm
        self._groups = groups
        self._streams = streams

    def room(self, call: str, row_bytes: int, num_tokens: int, num_bytes: int, argument: str) -> int:
        """For how many tokens of a rank so many bytes are enough; `argument` is what the caller may enlarge."""
        per_token = self.comm.nranks * row_bytes
        room = num_bytes // per_token
        if num_tokens > room or room == 0:
            raise ValueError(f"{call}: {num_tokens} tokens of {row_bytes} bytes on {self.comm.nranks} ranks need "
                             f"{max(num_tokens, 1) * per_token} bytes, but {argument} is {num_bytes}: enlarge {argument}")
        return room

    def group(self, call: str, num_experts: int, top_k: int, row_bytes: int, room: int, **more: int) -> ucclep.Group:
        return self._groups.get(call, num_experts=num_experts, top_k=top_k, max_tokens_per_rank=room,
                                ll_max_tokens_per_rank=1, max_token_bytes=row_bytes, **more)

    def bounded_group(self, call: str, num_experts: int, ids_shape: Any, row_bytes: int, num_bytes: int) -> ucclep.Group:
        """With so many bytes that peers write; calls with more tokens than they hold run in rounds."""
        tokens, top_k = ids_shape
        if tokens > MAX_TOKENS:
            raise ValueError(f"{call}: x has {tokens} tokens, expected at most {MAX_TOKENS}: divide the call")
        return self.group(call, num_experts, top_k, row_bytes, MAX_TOKENS, window_bytes=max(num_bytes, MIN_WINDOW_BYTES))

    def update(self, call: str, group: ucclep.Group, topk_idx: torch.Tensor, layout: Layout, alignment: int,
               stream: Any) -> Routing:
        """Takes a routing; the counts come with the stream."""
        settings = {"expert_alignment": alignment} if layout == Layout.EXPERT_MAJOR else {}
        lease = self._groups.lease(call, group, layout, Mode.HT, **settings)
        routing = Routing(lease, group, topk_idx.shape[0], topk_idx.shape[1], topk_idx.device)
        counters = {"tokens_per_rank": routing.recv_tokens_per_rank,
                    "tokens_per_expert_unpadded": routing.recv_tokens_per_expert}
        routing.core.update(topk_idx, counters=counters, stream=stream)
        return routing

    def dispatch(self, routing: Routing, x: Rows, num_sms: int, stream: Any, columns: bool = False, **more: Any) -> Rows:
        """Sends x along a routing; the rows that come are new tensors, with `columns` their scales column-major."""
        received = x.empty_like(routing.rows, columns)
        routing.core.dispatch(x.view(), received.view(), scales=x.scales, out_scales=received.scales, num_sms=num_sms,
                              stream=stream, **more)
        return received

    def combine(self, routing: Routing, x: torch.Tensor, topk_weights: torch.Tensor | None, bias: Any, num_sms: int,
                stream: Any, exact: torch.dtype | None = None) -> Combined:
        """Sums rows per token, and weights, where there are some. With `exact` a sum is rounded once, to this dtype."""
        biases = bias if isinstance(bias, (tuple, list)) else (bias, None)
        if len(biases) != 2:
            raise ValueError(f"combine: bias has {len(biases)} tensors, expected one, or a tuple of two")
        bias, bias2 = biases
        out = sums = x.new_empty((routing.num_tokens, x.shape[-1]), dtype=exact)
        held: list = [x, topk_weights, bias, bias2, out]
        if exact:
            with self._streams.on_comm_stream():
                x, bias, bias2, sums = (t if t is None else t.float() for t in (x, bias, bias2, out))
        how = {"num_sms": num_sms, "stream": stream}
        weights = None if topk_weights is None else topk_weights.new_empty((routing.num_tokens, routing.top_k))
        if weights is None or bias is not None:
            routing.core.combine(x, sums, bias=bias, bias2=bias2, **how)
        if weights is not None:
            rows, row_sums = x, sums
            if bias is not None:  # which a backward pass does not have: weights travel again, with rows of 16 bytes
                rows, row_sums = (x.new_empty((count, 16 // x.element_size())) for count in (len(x), routing.num_tokens))
            routing.core.combine(rows, row_sums, topk_weights=topk_weights, out_topk_weights=weights, backward=True, **how)
            held += [weights, rows, row_sums]
        return Combined(out, weights, (*held, x, bias, bias2, sums), (lambda: out.copy_(sums)) if exact else None)

    def share(self, words: torch.Tensor, stream: Any) -> tuple:
        """([R, n] int32: row r is what rank r has for this rank in its words [R, n], and the tensors of the operation)."""
        ranks, count = words.shape
        width = aligned(count, 4)
        group = self._groups.get("share", num_experts=ranks, top_k=1, max_tokens_per_rank=ranks, max_token_bytes=4 * width)
        lease = self._groups.lease("share", group, Layout.EXPERT_MAJOR, Mode.LL)
        with self._streams.on_comm_stream():
            rows = torch.zeros((ranks, width), dtype=torch.int32, device=words.device)
            rows[:, :count] = words
            received = rows.new_empty((1, ranks * ranks, width))
            ids = torch.arange(ranks, device=words.device)[:, None]
            lease.handle.dispatch(rows.view(torch.float32), received.view(torch.float32), topk_idx=ids, stream=stream)
        return received[0, :ranks, :count], (rows, received, ids)


class Combined(NamedTuple):
    """Results of a combine, the tensors that it uses, and what is called at its end."""

    tokens: torch.Tensor
    weights: Union[torch.Tensor, None]
    held: tuple
    finish: Union[Callable, None]


def most_rows(routing: Routing, tokens: int, alignment: int) -> int:
    """Rows of a rank's experts, if every rank sends so many tokens."""
    experts = routing.group.num_local_experts
    most = routing.group.comm.nranks * tokens * min(routing.top_k, experts)
    return aligned(most + experts * (alignment - 1), alignment)


def aligned(count: int, alignment: int) -> int:
    return -(-count // alignment) * alignment
