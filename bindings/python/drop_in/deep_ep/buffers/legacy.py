# SPDX-License-Identifier: Apache-2.0
"""Buffer: normal mode (dispatch, combine) and low-latency mode."""
from __future__ import annotations

from typing import Any

import torch
from ucclep import Layout

from .._C import is_sm90_compiled
from ..config import Config
from ..data_errors import check_alignment, check_counts, check_ids
from ..events import EventHandle, EventOverlap
from ..handles import DispatchHandle, node_counts, routing_of
from ..high_throughput import aligned
from ..low_latency import LowLatency, size_hint
from ..routes import ids_of, layout_of, only_to
from ..rows import Rows
from .base import BufferBase

#: What forks of DeepEP give to combine so that it follows a GEMM that still runs.
SINGLE_BATCH_OVERLAP = {"overlap", "packed_recv_count", "comp_signal", "block_m", "threshold", "num_sms", "src_signals",
                        "src_signal_expect_value"}


class Buffer(BufferBase):
    """Communication of one set of ranks. All of them make it, call its functions in the same order, and destroy it."""

    num_sms: int = 20

    def __init__(self, group: Any = None, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0,
                 low_latency_mode: bool = False, num_qps_per_rank: int = 24,
                 allow_nvlink_for_low_latency_mode: bool = True, allow_mnnvl: bool = False,
                 explicitly_destroy: bool = False, enable_shrink: bool = False, comm: Any = None,
                 use_fabric: bool = False) -> None:
        """`group` is of torch.distributed, `comm` of mpi4py; one of them is given.

        `num_nvl_bytes` bounds the memory that peers write in normal mode; calls with more tokens than it holds run in
        rounds. The library itself chooses connections and ways, so num_qps_per_rank,
        allow_nvlink_for_low_latency_mode, allow_mnnvl and use_fabric are hints without effect. With `enable_shrink` and the num_rdma_bytes that
        get_low_latency_rdma_size_hint returned, ranks that fail before their first call can be masked.
        """
        super().__init__(group, comm, explicitly_destroy=explicitly_destroy)
        self.rank, self.group_size = self._comm.rank, self._comm.nranks
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode = low_latency_mode
        self.enable_shrink = enable_shrink
        self._nodes: list = self._comm.topology()["nodes"]
        self._low_latency = LowLatency(self._comm, self._groups, self._streams, enable_shrink, num_rdma_bytes)

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """SMs of the kernels of normal mode."""
        if new_num_sms % 2:
            raise ValueError(f"the number of SMs is {new_num_sms}, expected an even number")
        Buffer.num_sms = new_num_sms

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Whether the library has code for GPUs of compute capability 9.0."""
        return is_sm90_compiled()

    @staticmethod
    def capture() -> EventOverlap:
        """An event of the current stream."""
        return EventOverlap(EventHandle())

    def get_local_buffer_tensor(self, dtype: torch.dtype, size: Any = None, offset: int = 0,
                                use_rdma_buffer: bool = False) -> torch.Tensor:
        """Scratch of the size of the buffer. It may be zeroed and written; no operation looks at it."""
        num_bytes = (self.num_rdma_bytes if use_rdma_buffer else self.num_nvl_bytes) - offset
        count = max(num_bytes, 0) // torch.empty((), dtype=dtype).element_size()
        scratch = torch.empty(count, dtype=dtype, device=self._streams.device)
        return scratch if size is None else scratch[:size.numel()].view(size)

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """For any number of ranks: the library plans the rest itself."""
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """For any number of ranks: the library plans the rest itself."""
        return Config(Buffer.num_sms)

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int,
                                       num_experts: int) -> int:
        """num_rdma_bytes: what a group of this shape takes on each rank."""
        return size_hint(num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts)

    # ---- normal mode ----

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int, previous_event: EventOverlap | None = None,
                            async_finish: bool = False, allocate_on_comm_stream: bool = False) -> tuple:
        """(tokens for each rank, for each node or None where there is one, for each expert, is_token_in_rank, event).

        Local: other ranks need not call it.
        """
        check_ids("get_dispatch_layout", topk_idx, num_experts)
        with self._streams.operation(previous_event, allocate_on_comm_stream) as stream, self._streams.on_comm_stream():
            group = self._groups.with_experts(num_experts)
            if group is None:
                per_rank, per_expert, in_rank = layout_of(topk_idx, num_experts, self.group_size)
            else:
                per_rank, per_expert = (topk_idx.new_empty(n, dtype=torch.int32) for n in (self.group_size, num_experts))
                in_rank = topk_idx.new_empty((len(topk_idx), self.group_size), dtype=torch.bool)
                group.routing_counts(topk_idx, tokens_per_rank=per_rank, tokens_per_expert=per_expert,
                                     is_token_in_rank=in_rank, stream=stream)

        def count_nodes() -> None:
            per_node.data.copy_(node_counts(in_rank, self._nodes))

        per_node: Any = per_rank.new_empty(len(self._nodes)) if len(self._nodes) > 1 else None
        in_rank.topk_idx = topk_idx  # for a dispatch without topk_idx
        event = self._streams.finished(async_finish, (topk_idx, per_rank, per_expert, in_rank, per_node),
                                       None if per_node is None else count_nodes)
        return per_rank, per_node, per_expert, in_rank, event

    def dispatch(self, x: Any, handle: tuple | None = None, num_tokens_per_rank: torch.Tensor | None = None,
                 num_tokens_per_rdma_rank: torch.Tensor | None = None, is_token_in_rank: torch.Tensor | None = None,
                 num_tokens_per_expert: torch.Tensor | None = None, topk_idx: torch.Tensor | None = None,
                 topk_weights: torch.Tensor | None = None, expert_alignment: int = 1, num_worst_tokens: int = 0,
                 config: Config | None = None, previous_event: EventOverlap | None = None, async_finish: bool = False,
                 allocate_on_comm_stream: bool = False) -> tuple:
        """(rows, topk_idx, topk_weights, tokens of each local expert, handle, event); x is rows or (rows, scales).

        Rows lie by source rank, then by token. With `handle` the routing of an earlier dispatch is used again. With
        `num_worst_tokens` the CPU does not wait: the tensors have that number of rows, and unused rows have topk_idx -1.
        Without `topk_idx` a token goes to the ranks of `is_token_in_rank`. With both, it goes to those ranks of its experts
        that are in `is_token_in_rank`.
        """
        rows = Rows.of(x)
        check_alignment(expert_alignment)
        num_sms = self._num_sms(config)
        if handle is not None:
            if topk_idx is not None or topk_weights is not None:
                raise ValueError("dispatch takes handle, or topk_idx and topk_weights, not both")
            routing = routing_of(handle)
            with self._streams.operation(previous_event, allocate_on_comm_stream) as stream:
                received = self._normal.dispatch(routing, rows, num_sms, stream)
            event = self._streams.finished(async_finish, (*rows, *received))
            return received.result(), None, None, None, None, event
        if num_tokens_per_expert is None:
            raise ValueError("dispatch needs num_tokens_per_expert of get_dispatch_layout, or a handle")
        if topk_idx is None and is_token_in_rank is None:
            raise ValueError("dispatch needs topk_idx, or is_token_in_rank, or a handle")
        with self._streams.operation(previous_event, allocate_on_comm_stream) as stream:
            routing, per_expert, ids, in_rank = self._route(
                rows, topk_idx, is_token_in_rank, (num_tokens_per_rank, num_tokens_per_rdma_rank, num_tokens_per_expert),
                num_worst_tokens, stream)
            counted = (num_tokens_per_rank, num_tokens_per_rdma_rank) if in_rank is is_token_in_rank else (None, None)
            with self._streams.on_comm_stream():
                made = DispatchHandle(routing, in_rank, *counted, self._nodes, self.rank)
            recv_ids = None if topk_idx is None else ids.new_empty((routing.rows, routing.top_k))
            recv_weights = None if topk_weights is None else topk_weights.new_empty((routing.rows, routing.top_k))
            received = self._normal.dispatch(routing, rows, num_sms, stream, topk_weights=topk_weights,
                                             src_info=made.src_info, out_topk_idx=recv_ids, out_topk_weights=recv_weights)
        tensors = made.tensors()
        event = self._streams.finished(
            async_finish, (*rows, ids, topk_weights, *received, recv_ids, recv_weights, made.src_info, *tensors[:-1],
                           routing.recv_tokens_per_rank, routing.recv_tokens_per_expert), made.finish)
        counts = [] if num_worst_tokens else [aligned(count, expert_alignment) for count in per_expert]
        return received.result(), recv_ids, recv_weights, counts, tensors, event

    def _route(self, rows: Rows, topk_idx: torch.Tensor | None, in_rank: torch.Tensor | None, counts_given: tuple, worst: int,
               stream: Any) -> tuple:
        """(routing, rows of each local expert, the ids that it took, [T, R] where tokens go)."""
        per_expert = counts_given[2]
        num_experts, ranks = per_expert.shape[0], self.group_size
        ids: Any = getattr(in_rank, "topk_idx", None) if topk_idx is None else topk_idx
        of_ranks, given = ids is None, ids
        shape = (len(rows.tokens), ranks)
        if in_rank is not None and in_rank.shape != shape:
            raise ValueError(f"dispatch: is_token_in_rank has the shape {tuple(in_rank.shape)}, expected {shape}, tokens x "
                             "ranks")
        with self._streams.on_comm_stream():
            if of_ranks:
                ids = ids_of(in_rank, "dispatch", not worst)
            else:
                check_ids("dispatch", ids, num_experts)
                if in_rank is None:
                    in_rank = layout_of(ids, num_experts, ranks)[2]
                elif getattr(in_rank, "topk_idx", None) is not ids:
                    ids, in_rank = only_to(ids, in_rank, num_experts)
        if not ids.is_cuda:
            self._check_counts(counts_given, in_rank, given, ids)
        group = self._normal.bounded_group("dispatch", ranks if of_ranks else num_experts, ids.shape, rows.bytes_per_row,
                                           self.num_nvl_bytes)
        routing = self._normal.update("dispatch", group, ids, Layout.FLAT, 1, stream)
        routing.rows, counts = (worst, []) if worst else routing.core.wait_counts()
        if of_ranks and not worst:
            shared, held = self._normal.share(per_expert.view(ranks, -1), stream)
            self._streams.finished(False, held)
            counts = shared.sum(0).tolist()
        return routing, counts, ids, in_rank

    def _check_counts(self, counts: tuple, in_rank: Any, ids: torch.Tensor | None, kept: Any) -> None:
        """They may be of all ids, too, some of which is_token_in_rank leaves out."""
        per_rank, per_node, per_expert = counts
        masks, of_experts = [in_rank], []
        if ids is not None:
            layouts = [layout_of(these, len(per_expert), self.group_size) for these in (kept, ids)]
            masks, of_experts = [layout[2] for layout in layouts], [layout[1] for layout in layouts]
        check_counts("dispatch", "num_tokens_per_rank", per_rank, *(mask.sum(0) for mask in masks))
        check_counts("dispatch", "num_tokens_per_rdma_rank", per_node, *(node_counts(mask, self._nodes) for mask in masks))
        if of_experts:
            check_counts("dispatch", "num_tokens_per_expert", per_expert, *of_experts)

    def combine(self, x: torch.Tensor, handle: tuple, topk_weights: torch.Tensor | None = None,
                bias: Any = None, config: Config | None = None, previous_event: EventOverlap | None = None,
                async_finish: bool = False, allocate_on_comm_stream: bool = False) -> tuple:
        """(sums of each token's rows, sums of weights or None, event). Weights do not multiply anything."""
        routing = routing_of(handle)
        with self._streams.operation(previous_event, allocate_on_comm_stream) as stream:
            done = self._normal.combine(routing, x, topk_weights, bias, self._num_sms(config), stream)
        return done.tokens, done.weights, self._streams.finished(async_finish, done.held, done.finish)

    def _num_sms(self, config: Config | None) -> int:
        """On the host device the library chooses."""
        if self._on_host:
            return 0
        return config.num_sms if config is not None else Buffer.num_sms

    # ---- low-latency mode ----

    def low_latency_dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor, num_max_dispatch_tokens_per_rank: int,
                             num_experts: int, cumulative_local_expert_recv_stats: torch.Tensor | None = None,
                             dispatch_wait_recv_cost_stats: torch.Tensor | None = None, use_fp8: bool = True,
                             round_scale: bool = False, use_ue8m0: bool = False, async_finish: bool = False,
                             return_recv_hook: bool = False, use_nvfp4: bool = False, x_global_scale: Any = None) -> tuple:
        """(rows [L, R * max, H] or (rows, scales), rows of each expert, handle, event, hook).

        At most two results are alive. With `return_recv_hook` rows are there after hook(). Times that
        `dispatch_wait_recv_cost_stats` adds up are nanoseconds.
        """
        if use_nvfp4 or x_global_scale is not None:
            raise NotImplementedError("use_nvfp4: libucclep quantises to fp8 only; pass fp4 rows with their scales in "
                                      "normal mode")
        return self._low_latency.dispatch(x, topk_idx, num_max_dispatch_tokens_per_rank, num_experts,
                                          cumulative_local_expert_recv_stats, dispatch_wait_recv_cost_stats,
                                          use_fp8, round_scale, use_ue8m0, async_finish, return_recv_hook)

    def low_latency_combine(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: tuple,
                            use_logfmt: bool = False, zero_copy: bool = False, async_finish: bool = False,
                            return_recv_hook: bool = False, out: torch.Tensor | None = None,
                            combine_wait_recv_cost_stats: torch.Tensor | None = None, **single_batch_overlap: Any) -> tuple:
        """(weighted sums [T, H], event, hook). `use_logfmt` is a hint, answered in bf16."""
        unknown = set(single_batch_overlap) - SINGLE_BATCH_OVERLAP
        if unknown:
            raise TypeError(f"low_latency_combine has no argument {', '.join(sorted(unknown))}")
        wanted = [name for name, value in single_batch_overlap.items() if value is not None and value is not False]
        if wanted:
            raise NotImplementedError(f"{', '.join(wanted)}: combine does not wait for signals of a running GEMM; start "
                                      "it from your kernel through ucclep/device.hpp instead")
        return self._low_latency.combine(x, topk_idx, topk_weights, handle, zero_copy, async_finish, return_recv_hook, out,
                                         combine_wait_recv_cost_stats)

    def get_next_low_latency_combine_buffer(self, handle: tuple) -> torch.Tensor:
        """Where combine with zero_copy=True reads its rows [L, R * max, H], bf16."""
        return self._low_latency.combine_buffer(handle)

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """[collective with enable_shrink] Ranks that do not come are masked. There is nothing to clean: counters only grow."""
        self._low_latency.meet()

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Masks a rank. mask=False for a masked one raises: low_latency_clean_mask_buffer brings ranks back."""
        self._low_latency.mask_update(rank_to_mask, mask)

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Writes R int32: 1 = masked."""
        self._low_latency.mask_query(mask_status)

    def low_latency_clean_mask_buffer(self) -> None:
        """[collective] Brings back all ranks whose process lived."""
        self._low_latency.mask_clear()
