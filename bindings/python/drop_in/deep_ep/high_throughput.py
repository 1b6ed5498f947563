# SPDX-License-Identifier: Apache-2.0
"""The normal mode: what Buffer and ElasticBuffer have in common over HT handles."""
from __future__ import annotations

from typing import Any

import torch
import ucclep
from ucclep import Layout, Mode
from ucclep.pool import Lease

from .groups import Groups
from .rows import Rows


class Routing:
    """Where the tokens of a dispatch went: what combine and later dispatches need of it."""

    def __init__(self, lease: Lease, group: ucclep.Group, num_tokens: int, top_k: int, device: torch.device):
        self.lease = lease
        self.core = lease.handle
        self.group = group
        self.num_tokens = num_tokens
        self.top_k = top_k
        ranks, experts = group.comm.nranks, group.num_local_experts
        self.recv_tokens_per_rank = torch.empty(ranks, dtype=torch.int32, device=device)
        self.recv_tokens_per_expert = torch.empty(experts, dtype=torch.int32, device=device)
        self.rows = 0  # of the tensors that dispatch makes: those received, or the caller's bound


class HighThroughput:
    def __init__(self, comm: ucclep.Communicator, groups: Groups):
        self.comm = comm
        self._groups = groups

    def room(self, call: str, row_bytes: int, num_tokens: int, num_bytes: int, argument: str) -> int:
        """For how many tokens of a rank so many bytes are enough; `argument` is what the caller may enlarge."""
        per_token = self.comm.nranks * row_bytes
        room = num_bytes // per_token
        if num_tokens > room or room == 0:
            raise ValueError(f"{call}: {num_tokens} tokens of {row_bytes} bytes on {self.comm.nranks} ranks need "
                             f"{max(num_tokens, 1) * per_token} bytes, {argument} is {num_bytes}: enlarge {argument}")
        return room

    def group(self, call: str, num_experts: int, top_k: int, row_bytes: int, room: int, **more: int) -> ucclep.Group:
        return self._groups.get(call, num_experts=num_experts, top_k=top_k, max_tokens_per_rank=room,
                                ll_max_tokens_per_rank=1, max_token_bytes=row_bytes, **more)

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
                stream: Any) -> tuple:
        """Sums rows per token; with weights, of a backward pass, sums of those too."""
        bias, bias2 = bias if isinstance(bias, tuple) else (bias, None)
        out = x.new_empty((routing.num_tokens, x.shape[-1]))
        if topk_weights is None:
            routing.core.combine(x, out, bias=bias, bias2=bias2, num_sms=num_sms, stream=stream)
            return out, None
        if bias is not None:
            raise NotImplementedError("combine takes bias or topk_weights: weights are summed in a backward pass, which "
                                      "has no bias")
        weights = topk_weights.new_empty((routing.num_tokens, routing.top_k))
        routing.core.combine(x, out, topk_weights=topk_weights, out_topk_weights=weights, backward=True, num_sms=num_sms,
                             stream=stream)
        return out, weights


def aligned(count: int, alignment: int) -> int:
    return -(-count // alignment) * alignment
