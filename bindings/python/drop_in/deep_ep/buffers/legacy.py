# SPDX-License-Identifier: Apache-2.0
"""Buffer: normal mode (dispatch, combine) and low-latency mode."""
from __future__ import annotations

from typing import Any

import torch
import ucclep
from ucclep import Layout
from ucclep.lifetime import Unique, retire

from ..config import Config
from ..connect import connect
from ..events import EventHandle, EventOverlap
from ..groups import Groups
from ..high_throughput import HighThroughput, aligned
from ..low_latency import LowLatency
from ..rows import Rows
from ..streams import streams_of


#: What forks of DeepEP give to combine so that it follows a GEMM that still runs.
SINGLE_BATCH_OVERLAP = {"overlap", "packed_recv_count", "comp_signal", "block_m", "threshold", "num_sms", "src_signals",
                        "src_signal_expect_value"}


class DispatchHandle:
    """What combine and cached dispatches need of a dispatch. Programs hand it on and do not look inside."""

    def __init__(self, routing: Any, src_info: torch.Tensor):
        self.routing = routing
        self.src_info = src_info  # [rows] the token's number on its source rank
        self.recv_tokens_per_rank = routing.recv_tokens_per_rank  # [R], rows lie in this order


class Buffer(Unique):
    """Communication of one set of ranks. All of them make it, call its functions in the same order, and destroy it."""

    num_sms: int = 20

    def __init__(self, group: Any = None, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0,
                 low_latency_mode: bool = False, num_qps_per_rank: int = 24,
                 allow_nvlink_for_low_latency_mode: bool = True, allow_mnnvl: bool = False,
                 explicitly_destroy: bool = False, enable_shrink: bool = False, comm: Any = None) -> None:
        """`group` is of torch.distributed, `comm` of mpi4py; one of them is given.

        `num_nvl_bytes` says how many tokens a call of normal mode may have: ranks x row bytes x tokens. The library
        itself chooses connections and ways, so num_qps_per_rank, allow_nvlink_for_low_latency_mode and allow_mnnvl
        are hints without effect.
        """
        self._comm = connect(group, comm)
        self.group = group if group is not None else comm
        self.rank, self.group_size = self._comm.rank, self._comm.nranks
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode = low_latency_mode
        self.explicitly_destroy, self.enable_shrink = explicitly_destroy, enable_shrink
        self._streams = streams_of(self._comm)
        self._groups = Groups(self._comm, self._streams.capturing)
        self._normal = HighThroughput(self._comm, self._groups)
        self._low_latency = LowLatency(self._comm, self._groups, self._streams, enable_shrink)

    def destroy(self) -> None:
        """[collective] Frees everything. Without it, that happens at the end of the process."""
        self._comm.destroy()
        retire(self)

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """SMs of the kernels of normal mode."""
        if new_num_sms % 2:
            raise ValueError(f"the number of SMs is {new_num_sms}, expected an even one")
        Buffer.num_sms = new_num_sms

    @staticmethod
    def is_sm90_compiled() -> bool:
        return "sm_90" in ucclep.build_info()

    @staticmethod
    def capture() -> EventOverlap:
        """An event of the current stream."""
        return EventOverlap(EventHandle())

    def get_comm_stream(self) -> Any:
        """The torch stream on which operations run; on the host device a ucclep.Stream."""
        return self._streams.comm_stream

    def get_local_buffer_tensor(self, dtype: torch.dtype, size: Any = None, offset: int = 0,
                                use_rdma_buffer: bool = False) -> torch.Tensor:
        """Scratch of the size of the buffer. It may be zeroed and written; no operation looks at it."""
        num_bytes = (self.num_rdma_bytes if use_rdma_buffer else self.num_nvl_bytes) - offset
        count = max(num_bytes, 0) // torch.empty((), dtype=dtype).element_size()
        scratch = torch.empty(count, dtype=dtype, device=self._streams.device)
        return scratch if size is None else scratch[:size.numel()].view(size)

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        return Config(Buffer.num_sms)

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int,
                                       num_experts: int) -> int:
        """num_rdma_bytes: what a group of this shape takes on each rank."""
        shape = dict(num_experts=num_experts, top_k=min(8, num_experts), max_tokens_per_rank=1,
                     ll_max_tokens_per_rank=num_max_dispatch_tokens_per_rank, max_token_bytes=2 * hidden)
        return ucclep.limits(None, nranks=num_ranks, **shape)["device_bytes"]

    # ---- normal mode ----

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int, previous_event: EventOverlap | None = None,
                            async_finish: bool = False, allocate_on_comm_stream: bool = False) -> tuple:
        """(tokens for each rank, for each node or None where there is one, for each expert, is_token_in_rank, event)."""
        tokens, top_k = topk_idx.shape
        nodes = self._comm.info()["num_nodes"]
        group = self._groups.get("get_dispatch_layout", num_experts=num_experts, top_k=top_k, max_tokens_per_rank=1,
                                 max_token_bytes=16)
        with self._streams.operation(previous_event, allocate_on_comm_stream) as stream:
            per_rank = topk_idx.new_empty(self.group_size, dtype=torch.int32)
            per_expert = topk_idx.new_empty(num_experts, dtype=torch.int32)
            in_rank = topk_idx.new_empty((tokens, self.group_size), dtype=torch.bool)
            per_node = topk_idx.new_empty(nodes, dtype=torch.int32) if nodes > 1 else None
            group.routing_counts(topk_idx, tokens_per_rank=per_rank, tokens_per_expert=per_expert,
                                 is_token_in_rank=in_rank, stream=stream)
        in_rank.topk_idx = topk_idx  # for a dispatch to which no topk_idx is given

        def count_nodes() -> None:
            for i, ranks in enumerate(self._comm.topology()["nodes"]):
                per_node[i] = in_rank[:, ranks].any(1).sum()

        event = self._streams.finished(async_finish, (topk_idx, per_rank, per_expert, in_rank, per_node),
                                       count_nodes if nodes > 1 else None)
        return per_rank, per_node, per_expert, in_rank, event

    def dispatch(self, x: Any, handle: DispatchHandle | None = None, num_tokens_per_rank: torch.Tensor | None = None,
                 num_tokens_per_rdma_rank: torch.Tensor | None = None, is_token_in_rank: torch.Tensor | None = None,
                 num_tokens_per_expert: torch.Tensor | None = None, topk_idx: torch.Tensor | None = None,
                 topk_weights: torch.Tensor | None = None, expert_alignment: int = 1, num_worst_tokens: int = 0,
                 config: Config | None = None, previous_event: EventOverlap | None = None, async_finish: bool = False,
                 allocate_on_comm_stream: bool = False) -> tuple:
        """(rows, topk_idx, topk_weights, tokens of each local expert, handle, event); x is rows or (rows, scales).

        Rows lie by source rank, then by token. With `handle` the routing of an earlier dispatch is used again. With
        `num_worst_tokens` the CPU does not wait: there are so many rows, of which the last have topk_idx -1.
        """
        rows = Rows.of(x)
        num_sms = self._num_sms(config)
        if handle is not None:
            if topk_idx is not None or topk_weights is not None:
                raise ValueError("dispatch takes handle, or topk_idx and topk_weights, not both")
            with self._streams.operation(previous_event, allocate_on_comm_stream) as stream:
                received = self._normal.dispatch(handle.routing, rows, num_sms, stream)
            event = self._streams.finished(async_finish, (*rows, *received))
            return received.result(), None, None, None, None, event
        if num_tokens_per_expert is None:
            raise ValueError("dispatch needs num_tokens_per_expert of get_dispatch_layout, or a handle")
        ids = topk_idx if topk_idx is not None else getattr(is_token_in_rank, "topk_idx", None)
        if ids is None:
            raise NotImplementedError("dispatch without topk_idx needs the is_token_in_rank that get_dispatch_layout returned")
        room = self._normal.room("dispatch", rows.bytes_per_row, ids.shape[0], self.num_nvl_bytes, "num_nvl_bytes")
        group = self._normal.group("dispatch", num_tokens_per_expert.shape[0], ids.shape[1], rows.bytes_per_row, room)
        with self._streams.operation(previous_event, allocate_on_comm_stream) as stream:
            routing = self._normal.update("dispatch", group, ids, Layout.FLAT, 1, stream)
            routing.rows, per_expert = num_worst_tokens, []
            if not num_worst_tokens:
                routing.rows, counts = routing.core.wait_counts()
                per_expert = [aligned(count, expert_alignment) for count in counts]
            recv_ids = None if topk_idx is None else ids.new_empty((routing.rows, routing.top_k))
            recv_weights = None if topk_weights is None else topk_weights.new_empty((routing.rows, routing.top_k))
            src_info = ids.new_empty(routing.rows, dtype=torch.int32)
            received = self._normal.dispatch(routing, rows, num_sms, stream, topk_weights=topk_weights, src_info=src_info,
                                             out_topk_idx=recv_ids, out_topk_weights=recv_weights)
        event = self._streams.finished(async_finish, (*rows, ids, topk_weights, *received, recv_ids, recv_weights, src_info,
                                                      routing.recv_tokens_per_rank, routing.recv_tokens_per_expert))
        return received.result(), recv_ids, recv_weights, per_expert, DispatchHandle(routing, src_info), event

    def combine(self, x: torch.Tensor, handle: DispatchHandle, topk_weights: torch.Tensor | None = None,
                bias: Any = None, config: Config | None = None, previous_event: EventOverlap | None = None,
                async_finish: bool = False, allocate_on_comm_stream: bool = False) -> tuple:
        """(sums of each token's rows, sums of weights or None, event). Weights do not multiply anything."""
        with self._streams.operation(previous_event, allocate_on_comm_stream) as stream:
            out, weights = self._normal.combine(handle.routing, x, topk_weights, bias, self._num_sms(config), stream)
        biases = bias if isinstance(bias, tuple) else (bias,)
        return out, weights, self._streams.finished(async_finish, (x, topk_weights, *biases, out, weights))

    def _num_sms(self, config: Config | None) -> int:
        """On the host device the library chooses."""
        if self._comm.device == ucclep.Device.HOST:
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
            raise NotImplementedError(f"{', '.join(wanted)}: combine does not follow signals of a GEMM that still runs; open "
                                      "it from your kernel through ucclep/device.hpp instead")
        return self._low_latency.combine(x, topk_idx, topk_weights, handle, zero_copy, async_finish, return_recv_hook, out,
                                         combine_wait_recv_cost_stats)

    def get_next_low_latency_combine_buffer(self, handle: tuple) -> torch.Tensor:
        """Where combine with zero_copy=True reads its rows [L, R * max, H], bf16."""
        return self._low_latency.combine_buffer(handle)

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Nothing to do: counters only grow, and modes share no memory."""

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Masks a rank. mask=False for a masked one raises: low_latency_clean_mask_buffer brings ranks back."""
        self._low_latency.mask_update(rank_to_mask, mask)

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Writes R int32: 1 = masked."""
        self._low_latency.mask_query(mask_status)

    def low_latency_clean_mask_buffer(self) -> None:
        """[collective] Brings back all ranks whose process lived."""
        self._low_latency.mask_clear()
