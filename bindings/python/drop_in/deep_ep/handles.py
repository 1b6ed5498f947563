# SPDX-License-Identifier: Apache-2.0
"""Handles of Buffer.dispatch: tuples of tensors, which autograd saves and returns as such.

They have DeepEP's positions. The last tensor is a ticket that stands for the routing.

    one node:       rank_prefix_matrix, channel_prefix_matrix, recv_channel_prefix_matrix, recv_src_idx, is_token_in_rank, ticket
    several nodes:  is_token_in_rank, rdma_channel_prefix_matrix, gbl_channel_prefix_matrix, recv_rdma_channel_prefix_matrix,
                    recv_rdma_rank_prefix_sum, recv_gbl_channel_prefix_matrix, recv_gbl_rank_prefix_sum, recv_src_meta,
                    rdma counts, ticket

All rows of an operation are one channel.
"""
from __future__ import annotations

from typing import Any

import torch
from ucclep.torch.ticket import holder_of, ticket_of

from .high_throughput import Routing


class DispatchHandle:
    """The tensors of a handle, made on the stream of operations. `finish` fills them in when the dispatch has ended."""

    def __init__(self, routing: Routing, in_rank: torch.Tensor, per_rank: torch.Tensor | None, per_node: torch.Tensor | None,
                 nodes: list, rank: int):
        ranks = in_rank.shape[1]
        kind = {"dtype": torch.int32, "device": in_rank.device}
        self._routing, self._in_rank, self._nodes, self._rank = routing, in_rank, nodes, rank
        self._many = len(nodes) > 1
        self._sent = (in_rank.sum(0) if per_rank is None else per_rank).to(torch.int32).view(ranks, 1)
        self._begins = torch.zeros((ranks, 1), **kind)
        #: Source tokens; between nodes their ranks, too: rank << 32 | token.
        self.src_info = torch.empty(routing.rows, dtype=torch.int64 if self._many else torch.int32, device=in_rank.device)
        if self._many:
            self._sums, self._node_sums = torch.empty(ranks, **kind), torch.empty(len(nodes), **kind)
            counts = node_counts(in_rank, nodes) if per_node is None else per_node
            self._node_sent = counts.to(torch.int32).view(-1, 1)
        else:
            self._sums = torch.full((ranks, ranks), -1, **kind)  # a rank knows its own column

    def tensors(self) -> tuple:
        ticket = ticket_of(self._routing)
        if not self._many:
            return self._sums, self._sent, self._begins, self.src_info, self._in_rank, ticket
        return (self._in_rank, self._node_sent, self._sent, self._begins[:len(self._nodes)], self._node_sums, self._begins,
                self._sums, self.src_info.view(torch.uint8).view(-1, 8), self._node_sent, ticket)

    def finish(self) -> None:
        received = self._routing.recv_tokens_per_rank
        sums = self._sums.data  # autograd may have saved it already, and would refuse what was changed since
        own = sums if self._many else sums[:, self._rank]
        own.copy_(received.cumsum(0))
        if self._many:
            self._node_sums.data.copy_(torch.stack([received[ranks].sum() for ranks in self._nodes]).cumsum(0))


def node_counts(in_rank: torch.Tensor, nodes: list) -> torch.Tensor:
    """[nodes] int32: tokens that go to each of them."""
    return torch.stack([in_rank[:, ranks].any(1).sum() for ranks in nodes]).to(torch.int32)


def routing_of(handle: Any) -> Routing:
    if not isinstance(handle, (tuple, list)) or not handle or not isinstance(handle[-1], torch.Tensor):
        raise TypeError(f"handle is a {type(handle).__name__}, expected the tuple of tensors that dispatch returned")
    return holder_of(handle[-1])
