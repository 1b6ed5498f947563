# SPDX-License-Identifier: Apache-2.0
"""EPHandle: what combine and cached dispatches of an EPBuffer or an ElasticBuffer need of a dispatch."""
from __future__ import annotations

import torch

from .data_errors import version_of
from .high_throughput import Routing, aligned, most_rows
from .routes import layout_of


class EPHandle:
    """What combine and cached dispatches need of a dispatch, and its counts.

    Prefix sums, num_unaligned_recv_tokens_per_expert, recv_src_metadata, and with do_expand num_recv_tokens are there when the
    dispatch has ended. Programs that sum an expert-wise dispatch per token themselves say so to combine: by do_expand = False,
    or by recv_src_metadata with other rows for a token's selections.
    """

    token_metadata_at_forward = channel_linked_list = None

    def __init__(self, routing: Routing, do_expand: bool, expert_alignment: int, num_max_tokens_per_rank: int, num_sms: int,
                 topk_idx: torch.Tensor, counts: list):
        self.routing = routing
        self.expanded = do_expand  # how rows lie, whatever a program says of its own
        self.do_expand = do_expand
        self.num_experts = routing.group.num_experts
        self.expert_alignment = expert_alignment
        self.num_max_tokens_per_rank = num_max_tokens_per_rank
        self.num_sms = num_sms
        self._topk_idx, self._version = topk_idx, version_of(topk_idx)
        self.num_recv_tokens_per_expert_list = [aligned(count, expert_alignment) for count in counts]
        self.num_expanded_tokens = routing.rows
        if not do_expand:  # what it would have been
            listed = self.num_recv_tokens_per_expert_list
            self.num_expanded_tokens = sum(listed) if listed else most_rows(routing, num_max_tokens_per_rank, expert_alignment)
        self.num_unaligned_recv_tokens_per_expert = routing.recv_tokens_per_expert
        self.psum_num_recv_tokens_per_scaleup_rank = torch.empty_like(routing.recv_tokens_per_rank)
        self.psum_num_recv_tokens_per_expert = torch.empty_like(routing.recv_tokens_per_expert)
        self._src_info = torch.empty(0)  # of each row, source rank << 32 | token; -1 where there is none
        self._row_ids: torch.Tensor | None = None  # with do_expand, topk_idx of each row's token, int32 by bits
        self._metadata: torch.Tensor | None = None
        self._seen_metadata: tuple = ()  # what a program saw last, to know whether it has changed that

    def check_ids(self) -> None:
        """Raises where a program has changed the ids since the dispatch."""
        if version_of(self._topk_idx) != self._version:
            raise RuntimeError("topk_idx was changed in place after the dispatch, and rows return as they were sent: leave it "
                               "unchanged as long as the handle is used, or dispatch a copy of it")

    @property
    def topk_idx(self) -> torch.Tensor:
        """The ids of the dispatch."""
        self.check_ids()
        return self._topk_idx

    @property
    def num_recv_tokens(self) -> int:
        """Tokens that were received; where the CPU did not wait for the counts, as many as can come."""
        if not self.expanded:
            return self.routing.rows
        if not self.num_recv_tokens_per_expert_list:
            return self.routing.group.comm.nranks * self.num_max_tokens_per_rank
        return int(self.psum_num_recv_tokens_per_scaleup_rank[-1])

    def finish(self, src_info: torch.Tensor, row_ids: torch.Tensor | None) -> None:
        """Fills in what is computed from the counts of the device: as data, for autograd may have saved the tensors."""
        self._src_info, self._row_ids = src_info, row_ids
        # A token counts once for its rank, however many experts have it.
        seen = self._seen(self._global_tokens()).view(-1, self.num_max_tokens_per_rank)
        torch.cumsum(seen.sum(1, dtype=torch.int32), 0, dtype=torch.int32, out=self.psum_num_recv_tokens_per_scaleup_rank.data)
        counts = self.num_unaligned_recv_tokens_per_expert
        ends = self._zone_ends()
        self.psum_num_recv_tokens_per_expert.data.copy_(ends - self._padded(counts) + counts if self.expanded else ends)

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
        of -1 follow the last token. It may be set and changed: combine then takes the rows that it names."""
        if self._metadata is None:
            self._metadata = self._find_metadata()
            self._seen_metadata = self._state(self._metadata)
        return self._metadata

    @recv_src_metadata.setter
    def recv_src_metadata(self, metadata: torch.Tensor) -> None:
        if metadata.dim() != 2 or metadata.shape[1] != 2 + self.routing.top_k:
            raise ValueError(f"recv_src_metadata has the shape {tuple(metadata.shape)}, expected [tokens, "
                             f"{2 + self.routing.top_k}]")
        self._metadata = metadata

    @staticmethod
    def _state(metadata: torch.Tensor) -> tuple:
        return metadata.data_ptr(), metadata.stride(0), version_of(metadata)

    def _find_metadata(self) -> torch.Tensor:
        count = self.num_recv_tokens
        place = self._places(count)
        made = torch.full((count + 1, 2 + self.routing.top_k), -1, dtype=torch.int32, device=place.device)
        made[place, 0] = self._global_tokens().int()
        made[place, 1] = place.int()
        if self._row_ids is not None:
            row, expert = self._experts()
            first = self.routing.group.comm.rank * self.routing.group.num_local_experts
            ids = self._row_ids.contiguous().view(torch.int32)
            k = (ids == (expert + first)[:, None]).int().argmax(1)
            made[place, 2 + k] = row
        return made[:count]

    @property
    def changed(self) -> bool:
        """Whether a program gives combine other rows than those that the dispatch made."""
        other = self._metadata is not None and self._state(self._metadata) != self._seen_metadata
        return other or self.do_expand != self.expanded

    def rows_of(self, x: torch.Tensor, topk_weights: torch.Tensor | None, exact: bool) -> tuple:
        """Of a changed handle the rows and weights of a combine as they lie in the routing; with `exact` rows are fp32."""
        if self.do_expand and not self.expanded:
            raise ValueError("combine: do_expand of the handle was set to True, but the dispatch was made without it")
        lines, known = self.recv_src_metadata, self._find_metadata()
        if self.do_expand:
            slots = lines[:, 2:].long()
            x, topk_weights = _summed(x, slots, exact), None if topk_weights is None else _at(topk_weights, slots)
        if len(x) != len(lines):
            raise ValueError(f"combine: {len(x)} rows for {len(lines)} lines of recv_src_metadata, expected one for each")
        place = self._place_of(lines, known)
        if not self.expanded:
            return _put(x, place, len(known)), None if topk_weights is None else _put(topk_weights, place, len(known))
        # A token's sum stands for the first of its rows, the others are zero.
        rows = self.routing.rows
        rows_at = torch.cat([known, known.new_full((1, known.shape[1]), -1)])[place, 2:].long()
        first = rows_at.gather(1, (rows_at >= 0).int().argmax(1, keepdim=True))[:, 0]
        made = _put(x, torch.where(first >= 0, first, rows), rows)
        if topk_weights is not None:
            topk_weights = _put(topk_weights.flatten(), torch.where(rows_at >= 0, rows_at, rows).flatten(), rows)
        return made, topk_weights

    def _place_of(self, lines: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        """Of each line the place of its token among the received ones; behind the last where it has none."""
        none = torch.iinfo(torch.int32).max
        tokens = torch.where(known[:, 0] >= 0, known[:, 0], none).contiguous()  # ascending
        given = lines[:, 0].to(torch.int32).contiguous()
        place = torch.searchsorted(tokens, given)
        there = torch.cat([tokens, tokens.new_full((1,), none)])[place] == given
        counted = torch.arange(len(lines), device=lines.device) < self.psum_num_recv_tokens_per_scaleup_rank[-1]
        return torch.where(there & counted & (given >= 0), place, len(known))

    def _places(self, count: int) -> torch.Tensor:
        """Of each row, the place of its token among `count`, the received ones in front; behind them where there is no row."""
        tokens = self._global_tokens()
        if not self.expanded:
            return torch.where(self._src_info >= 0, torch.arange(count, device=tokens.device), count)
        places = torch.cumsum(self._seen(tokens), 0) - 1
        return torch.where(self._src_info >= 0, places[tokens.clamp(max=len(places) - 1)], count)

    def _experts(self) -> tuple:
        """(row numbers, the local expert of each row), with do_expand."""
        row = torch.arange(self.routing.rows, dtype=torch.int32, device=self._src_info.device)
        return row, torch.bucketize(row, self._zone_ends(), right=True)

    def padded_counts(self) -> torch.Tensor:
        """[L] int64: rows of each local expert, with their padding, as far as there is room for them."""
        ends = self._zone_ends().long().clamp(max=self.routing.rows)
        return torch.diff(ends, prepend=ends.new_zeros(1))

    def expert_map(self) -> torch.Tensor:
        """[rows, L]: which local experts a received token has. What follows the last token is False. (How many there are is
        on the device.)"""
        rows = self.routing.rows
        place = self._places(rows)
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


def _put(values: torch.Tensor, place: torch.Tensor, count: int) -> torch.Tensor:
    """`count` rows, zero where no place names them; the place behind the last is nowhere."""
    return values.new_zeros((count + 1, *values.shape[1:])).index_copy_(0, place.long(), values)[:count]


def _at(weights: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """[N, K]: what [rows] has at the slots, 0 where there is none."""
    return torch.cat([weights, weights.new_zeros(1)])[slots.clamp(min=-1)]


def _summed(x: torch.Tensor, slots: torch.Tensor, exact: bool) -> torch.Tensor:
    """[N, H]: the sums of the rows at the slots [N, K], one after the other in fp32."""
    sums = x.new_zeros((len(slots), x.shape[1]), dtype=torch.float32)
    for slot in slots.t():
        there = (slot >= 0)[:, None]
        sums += torch.where(there, x[slot.clamp(min=0)].float(), torch.zeros_like(sums)) if len(x) else 0
    return sums if exact else sums.to(x.dtype)
