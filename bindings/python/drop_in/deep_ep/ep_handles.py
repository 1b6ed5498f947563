# SPDX-License-Identifier: Apache-2.0
"""EPHandle: what combine and cached dispatches of an EPBuffer or an ElasticBuffer need of a dispatch."""
from __future__ import annotations

import torch

from .high_throughput import Routing, aligned
from .routes import layout_of


class EPHandle:
    """What combine and cached dispatches need of a dispatch, and its counts.

    num_recv_tokens is None with do_expand, num_expanded_tokens without it. Prefix sums, num_unaligned_recv_tokens_per_expert
    and recv_src_metadata are there when the dispatch has ended.
    """

    token_metadata_at_forward = channel_linked_list = None

    def __init__(self, routing: Routing, do_expand: bool, expert_alignment: int, num_max_tokens_per_rank: int, num_sms: int,
                 topk_idx: torch.Tensor, counts: list):
        self.routing = routing
        self.do_expand = do_expand
        self.num_experts = routing.group.num_experts
        self.expert_alignment = expert_alignment
        self.num_max_tokens_per_rank = num_max_tokens_per_rank
        self.num_sms = num_sms
        self.topk_idx = topk_idx
        self.num_recv_tokens = None if do_expand else routing.rows
        self.num_expanded_tokens = routing.rows if do_expand else None
        self.num_recv_tokens_per_expert_list = [aligned(count, expert_alignment) for count in counts]
        self.num_unaligned_recv_tokens_per_expert = routing.recv_tokens_per_expert
        self.psum_num_recv_tokens_per_scaleup_rank = torch.empty_like(routing.recv_tokens_per_rank)
        self.psum_num_recv_tokens_per_expert = torch.empty_like(routing.recv_tokens_per_expert)
        self._src_info = torch.empty(0)  # of each row, source rank << 32 | token; -1 where there is none
        self._row_ids: torch.Tensor | None = None  # with do_expand, topk_idx of each row's token, int32 by bits
        self._metadata: torch.Tensor | None = None

    def finish(self, src_info: torch.Tensor, row_ids: torch.Tensor | None) -> None:
        """Fills in what is computed from the counts of the device."""
        self._src_info, self._row_ids = src_info, row_ids
        # A token counts once for its rank, however many experts have it.
        seen = self._seen(self._global_tokens()).view(-1, self.num_max_tokens_per_rank)
        torch.cumsum(seen.sum(1, dtype=torch.int32), 0, dtype=torch.int32, out=self.psum_num_recv_tokens_per_scaleup_rank)
        counts = self.num_unaligned_recv_tokens_per_expert
        ends = self._zone_ends()
        self.psum_num_recv_tokens_per_expert.copy_(ends - self._padded(counts) + counts if self.do_expand else ends)

    def _padded(self, counts: torch.Tensor) -> torch.Tensor:
        return torch.div(counts + self.expert_alignment - 1, self.expert_alignment, rounding_mode="floor") * self.expert_alignment

    def _zone_ends(self) -> torch.Tensor:
        return torch.cumsum(self._padded(self.num_unaligned_recv_tokens_per_expert), 0, dtype=torch.int32)

    def _global_tokens(self) -> torch.Tensor:
        """Of each row, source rank x num_max_tokens_per_rank + token; behind the last where there is no row."""
        most = self.num_max_tokens_per_rank
        token = (self._src_info >> 32) * most + (self._src_info & 0xffffffff)
        return torch.where(self._src_info >= 0, token, self.routing.group.comm.nranks * most)

    def _seen(self, tokens: torch.Tensor) -> torch.Tensor:
        """1 for each global token that is among them."""
        count = self.routing.group.comm.nranks * self.num_max_tokens_per_rank
        return torch.zeros(count + 1, dtype=torch.int32, device=tokens.device).index_fill_(0, tokens, 1)[:-1]

    @property
    def recv_src_metadata(self) -> torch.Tensor:
        """[N, 2 + K] int32 of each received token: source rank x num_max_tokens_per_rank + token, its place among the received
        tokens, and with do_expand the rows of its K selections. -1 is nothing. Where the CPU did not wait for the counts, lines
        of -1 follow the last token. It may be set: programs cut it then."""
        if self._metadata is None:
            self._metadata = self._find_metadata()
            if self.num_recv_tokens_per_expert_list:
                self._metadata = self._metadata[:int(self.psum_num_recv_tokens_per_scaleup_rank[-1])]
        return self._metadata

    @recv_src_metadata.setter
    def recv_src_metadata(self, metadata: torch.Tensor) -> None:
        self._metadata = metadata

    def _find_metadata(self) -> torch.Tensor:
        rows, place = self.routing.rows, self._places()
        made = torch.full((rows + 1, 2 + self.routing.top_k), -1, dtype=torch.int32, device=place.device)
        made[place, 0] = self._global_tokens().int()
        made[place, 1] = place.int()
        if self._row_ids is not None:
            row, expert = self._experts()
            first = self.routing.group.comm.rank * self.routing.group.num_local_experts
            ids = self._row_ids.contiguous().view(torch.int32)
            k = (ids == (expert + first)[:, None]).int().argmax(1)
            made[place, 2 + k] = row
        return made[:rows]

    def _places(self) -> torch.Tensor:
        """Of each row, the place of its token among the received ones; behind the last where there is no row."""
        tokens, rows = self._global_tokens(), self.routing.rows
        if not self.do_expand:
            return torch.where(self._src_info >= 0, torch.arange(rows, device=tokens.device), rows)
        places = torch.cumsum(self._seen(tokens), 0) - 1
        return torch.where(self._src_info >= 0, places[tokens.clamp(max=len(places) - 1)], rows)

    def _experts(self) -> tuple:
        """(row numbers, the local expert of each row), with do_expand."""
        row = torch.arange(self.routing.rows, dtype=torch.int32, device=self._src_info.device)
        return row, torch.bucketize(row, self._zone_ends(), right=True)

    def padded_counts(self) -> torch.Tensor:
        """[L] int64: rows of each local expert, with their padding, as far as there is room for them."""
        ends = self._zone_ends().long().clamp(max=self.routing.rows)
        return torch.diff(ends, prepend=ends.new_zeros(1))

    def expert_map(self) -> torch.Tensor:
        """[N, L]: which local experts a received token has. What follows the last token is False."""
        rows, place = self.routing.rows, self._places()
        made = torch.zeros((rows + 1, self.routing.group.num_local_experts + 1), dtype=torch.bool, device=place.device)
        made[place, self._experts()[1]] = True
        return made[:rows, :-1]

    @property
    def dst_buffer_slot_idx(self) -> torch.Tensor:
        """[T, K] int32: which of this rank's rows for the selection's rank the token is, plus rank x num_max_tokens_per_rank."""
        ranks, rank = self.routing.group.comm.nranks, self.routing.group.comm.rank
        places = layout_of(self.topk_idx, self.num_experts, ranks)[2].cumsum(0) - 1 + rank * self.num_max_tokens_per_rank
        owners = torch.div(self.topk_idx.long().clamp(min=0), self.num_experts // ranks, rounding_mode="floor")
        return torch.where(self.topk_idx >= 0, places.gather(1, owners), -1).int()
