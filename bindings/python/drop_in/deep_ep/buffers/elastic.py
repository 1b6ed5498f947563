# SPDX-License-Identifier: Apache-2.0
"""ElasticBuffer: one dispatch and one combine, with or without a row for each expert."""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import ucclep
from ucclep import Layout, Mode
from ucclep.lifetime import Unique, retire

from ..connect import connect
from ..events import EventHandle
from ..groups import Groups
from ..high_throughput import HighThroughput, Routing, aligned
from ..rows import Rows
from ..streams import streams_of

#: SMs that leave room for computing beside the kernels.
SMS_BESIDE_COMPUTE = 32


class EPHandle:
    """What combine and cached dispatches need of a dispatch, and its counts.

    num_recv_tokens is None with do_expand, num_expanded_tokens without it. The prefix sums and
    num_unaligned_recv_tokens_per_expert are there when the dispatch has ended. Column 0 of recv_src_metadata is
    source rank x num_max_tokens_per_rank + token, -1 where there is no row.
    """

    dst_buffer_slot_idx = token_metadata_at_forward = channel_linked_list = None

    def __init__(self, routing: Routing, do_expand: bool, expert_alignment: int, num_max_tokens_per_rank: int, num_sms: int,
                 topk_idx: torch.Tensor):
        self.routing = routing
        self.do_expand = do_expand
        self.num_experts = routing.group.num_experts
        self.expert_alignment = expert_alignment
        self.num_max_tokens_per_rank = num_max_tokens_per_rank
        self.num_sms = num_sms
        self.topk_idx = topk_idx
        self.num_recv_tokens: int | None = None
        self.num_expanded_tokens: int | None = None
        self.num_recv_tokens_per_expert_list: list = []
        self.num_unaligned_recv_tokens_per_expert = routing.recv_tokens_per_expert
        self.psum_num_recv_tokens_per_scaleup_rank = torch.empty_like(routing.recv_tokens_per_rank)
        self.psum_num_recv_tokens_per_expert = torch.empty_like(routing.recv_tokens_per_expert)
        self.recv_src_metadata = topk_idx.new_empty((routing.rows, 1), dtype=torch.int32)

    def finish(self, src_info: torch.Tensor) -> None:
        """Fills in what is computed from the counts of the device."""
        ranks = self.routing.recv_tokens_per_rank.shape[0]
        most = self.num_max_tokens_per_rank
        used = src_info >= 0
        index = torch.where(used, (src_info >> 32) * most + (src_info & 0xffffffff), ranks * most)
        # A token counts once for its rank, however many experts have it.
        seen = torch.zeros(ranks * most + 1, dtype=torch.int32, device=index.device).index_fill_(0, index, 1)
        torch.cumsum(seen[:-1].view(ranks, most).sum(1, dtype=torch.int32), 0, dtype=torch.int32,
                     out=self.psum_num_recv_tokens_per_scaleup_rank)
        self.recv_src_metadata[:, 0] = torch.where(used, index, -1)
        counts = self.num_unaligned_recv_tokens_per_expert
        padded = torch.div(counts + self.expert_alignment - 1, self.expert_alignment,
                           rounding_mode="floor") * self.expert_alignment
        ends = torch.cumsum(padded, 0, dtype=torch.int32)
        self.psum_num_recv_tokens_per_expert.copy_(ends - padded + counts if self.do_expand else ends)


class _Call(NamedTuple):
    """What a dispatch is about."""

    num_experts: int
    tokens: int
    alignment: int
    num_sms: int
    expand: bool


class ElasticBuffer(Unique):
    """Communication of one set of ranks. All of them make it, call its functions in the same order, and destroy it."""

    def __init__(self, group: Any, num_bytes: int | None = None, num_cpu_bytes: int = 0, num_max_tokens_per_rank: int = 0,
                 hidden: int = 0, num_topk: int = 0, use_fp8_dispatch: bool = False, deterministic: bool = False,
                 allow_hybrid_mode: bool = True, allow_multiple_reduction: bool = True,
                 prefer_overlap_with_compute: bool = True, sl_idx: int = 3, num_allocated_qps: int = 0,
                 num_cpu_timeout_secs: int = 300, num_gpu_timeout_secs: int = 100, explicitly_destroy: bool = False,
                 comm: Any = None) -> None:
        """`num_max_tokens_per_rank`, or else `num_bytes`, says how many tokens a call may have.

        Results are always deterministic. num_cpu_bytes, allow_hybrid_mode, allow_multiple_reduction, sl_idx and
        num_allocated_qps are hints without effect. `comm`, of mpi4py, may stand for `group`.
        """
        self._comm = connect(group, comm, 1000 * num_cpu_timeout_secs)
        self.group = group if group is not None else comm
        self.rank_idx, self.num_ranks = self._comm.rank, self._comm.nranks
        self.num_bytes = num_bytes or self.get_buffer_size_hint(self.group, num_max_tokens_per_rank, hidden)
        self.num_max_tokens_per_rank = num_max_tokens_per_rank
        self.deterministic, self.explicitly_destroy = deterministic, explicitly_destroy
        self.allow_hybrid_mode, self.allow_multiple_reduction = allow_hybrid_mode, allow_multiple_reduction
        self.prefer_overlap_with_compute = prefer_overlap_with_compute
        self.num_allocated_qps = num_allocated_qps
        self._timeout_ms = 1000 * num_gpu_timeout_secs
        self._streams = streams_of(self._comm)
        self._groups = Groups(self._comm, self._streams.capturing)
        self._normal = HighThroughput(self._comm, self._groups)

    def destroy(self) -> None:
        """[collective] Frees everything. Without it, that happens at the end of the process."""
        self._comm.destroy()
        retire(self)

    @staticmethod
    def capture() -> EventHandle:
        """An event of the current stream."""
        return EventHandle()

    def get_comm_stream(self) -> Any:
        """The torch stream on which operations run; on the host device a ucclep.Stream."""
        return self._streams.comm_stream

    def get_physical_domain_size(self) -> tuple:
        """(domains, ranks of a domain): inside of one, ranks reach each other's memory."""
        size = self._comm.info()["domain_size"]
        return self.num_ranks // size, size

    def get_logical_domain_size(self) -> tuple:
        """(1, ranks): counts are by rank."""
        return 1, self.num_ranks

    @staticmethod
    def get_buffer_size_hint(group: Any, num_max_tokens_per_rank: int, hidden: int, num_topk: int = 0,
                             use_fp8_dispatch: bool = False, allow_hybrid_mode: bool = True,
                             allow_multiple_reduction: bool = True) -> int:
        """num_bytes: ranks x bytes of a bf16 row x tokens."""
        nranks = group.size() if callable(getattr(group, "size", None)) else group.Get_size()
        return nranks * 2 * hidden * num_max_tokens_per_rank

    def get_theoretical_num_sms(self, num_experts: int, num_topk: int) -> int:
        """SMs that an operation gets when 0 is given."""
        if self._comm.device == ucclep.Device.HOST:
            return SMS_BESIDE_COMPUTE
        most = torch.cuda.get_device_properties(self._streams.device).multi_processor_count
        return min(SMS_BESIDE_COMPUTE, most) if self.prefer_overlap_with_compute else most

    def get_theoretical_num_qps(self, num_sms: int) -> int:
        """The library deals out connections itself."""
        return max(1, self.num_allocated_qps)

    def barrier(self, use_comm_stream: bool = True, with_cpu_sync: bool = False) -> None:
        """Later work on the stream runs when all ranks have come here: each sends a row to all."""
        group = self._groups.get("barrier", num_experts=self.num_ranks, top_k=self.num_ranks, max_tokens_per_rank=1,
                                 max_token_bytes=16)
        lease = self._groups.lease("barrier", group, Layout.EXPERT_MAJOR, Mode.LL)
        to = self._streams.device
        ids = torch.arange(self.num_ranks, device=to)[None]
        row, rows = torch.zeros((1, 4), device=to), torch.empty((1, self.num_ranks, 4), device=to)
        with self._streams.operation(None, False) as stream:
            lease.handle.dispatch(row, rows, topk_idx=ids, stream=stream if use_comm_stream else self._streams.here())
        event = self._streams.finished(True, (ids, row, rows))
        event.current_stream_wait()
        if with_cpu_sync:
            self._comm.synchronize(self._streams.here())

    def dispatch(self, x: Any, topk_idx: torch.Tensor | None = None, topk_weights: torch.Tensor | None = None,
                 cumulative_local_expert_recv_stats: torch.Tensor | None = None, num_experts: int | None = None,
                 num_max_tokens_per_rank: int | None = None, expert_alignment: int | None = None, num_sms: int = 0,
                 num_qps: int = 0, previous_event: Any = None, previous_event_before_epilogue: Any = None,
                 async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False,
                 handle: EPHandle | None = None, do_handle_copy: bool = True, do_cpu_sync: bool | None = None,
                 do_expand: bool = False, do_zero_padding: bool = False,
                 use_tma_aligned_col_major_sf: bool = False) -> tuple:
        """(rows, topk_idx, topk_weights, handle, event); x is rows or (rows, scales).

        Rows lie by source rank, then by token; with `do_expand` by local expert first, each expert's padded with zero
        rows to `expert_alignment`, and there is no topk_idx. Without `do_cpu_sync` there are as many rows as can come:
        of the last ones topk_idx is -1. The operation is one kernel, so previous_event_before_epilogue is waited for at
        its beginning.
        """
        rows = Rows.of(x)
        cached = handle is not None
        if cached and (topk_idx is not None or do_cpu_sync):
            raise ValueError("with a handle topk_idx is the handle's, and there is nothing to wait for")
        if cached and handle.do_expand != do_expand:
            raise ValueError(f"the handle's do_expand is {handle.do_expand}, the call's {do_expand}")
        if not cached and (topk_idx is None or num_experts is None):
            raise ValueError("dispatch needs topk_idx and num_experts, or a handle")
        on_host = self._comm.device == ucclep.Device.HOST
        call = _Call(num_experts or 0, num_max_tokens_per_rank or self.num_max_tokens_per_rank, expert_alignment or 1,
                     0 if on_host else num_sms, do_expand)
        with self._streams.operation(previous_event, allocate_on_comm_stream, previous_event_before_epilogue) as stream:
            if not cached:
                handle = self._route(call, rows, topk_idx, do_cpu_sync is not False, do_handle_copy, stream)
            routing = handle.routing
            recv_ids = None if do_expand else handle.topk_idx.new_empty((routing.rows, routing.top_k))
            shape = (routing.rows,) if do_expand else (routing.rows, routing.top_k)
            recv_weights = None if topk_weights is None else topk_weights.new_empty(shape)
            src_info = handle.topk_idx.new_empty(routing.rows, dtype=torch.int64)
            with self._streams.on_comm_stream():
                src_info.fill_(-1)
            received = self._normal.dispatch(
                routing, rows, call.num_sms, stream, use_tma_aligned_col_major_sf, topk_weights=topk_weights,
                src_info=src_info, out_topk_idx=recv_ids, out_topk_weights=recv_weights,
                cumulative_tokens_per_expert=cumulative_local_expert_recv_stats)
        event = self._streams.finished(
            async_with_compute_stream,
            (*rows, topk_idx, topk_weights, *received, recv_ids, recv_weights, src_info, handle.recv_src_metadata,
             handle.psum_num_recv_tokens_per_scaleup_rank, handle.psum_num_recv_tokens_per_expert,
             routing.recv_tokens_per_rank, routing.recv_tokens_per_expert),
            None if cached else lambda: handle.finish(src_info))
        return received.result(), recv_ids, recv_weights, handle, event

    def _route(self, call: _Call, rows: Rows, topk_idx: torch.Tensor, cpu_sync: bool, copy: bool, stream: Any) -> EPHandle:
        tokens, top_k = topk_idx.shape
        row_bytes = rows.bytes_per_row
        room = call.tokens or self._normal.room("dispatch", row_bytes, tokens, self.num_bytes, "num_bytes")
        if tokens > room:
            raise ValueError(f"dispatch: {tokens} tokens, num_max_tokens_per_rank is {room}: enlarge num_max_tokens_per_rank")
        group = self._normal.group("dispatch", call.num_experts, top_k, row_bytes, room, timeout_ms=self._timeout_ms)
        layout = Layout.EXPERT_MAJOR if call.expand else Layout.FLAT
        routing = self._normal.update("dispatch", group, topk_idx, layout, call.alignment, stream)
        experts, counts, total = group.num_local_experts, [], None
        if cpu_sync:
            total, counts = routing.core.wait_counts()
            routing.rows = total
        elif call.expand:
            most = self.num_ranks * room * min(top_k, experts)
            routing.rows = aligned(most + experts * (call.alignment - 1), call.alignment)
        else:
            routing.rows = self.num_ranks * room
        handle = EPHandle(routing, call.expand, call.alignment, room, call.num_sms,
                          topk_idx.clone() if copy else topk_idx)
        handle.num_recv_tokens_per_expert_list = [aligned(count, call.alignment) for count in counts]
        if call.expand:
            handle.num_expanded_tokens = routing.rows
        else:
            handle.num_recv_tokens = routing.rows
        return handle

    def combine(self, x: torch.Tensor, handle: EPHandle, topk_weights: torch.Tensor | None = None, bias: Any = None,
                num_sms: int = 0, num_qps: int = 0, previous_event: Any = None, previous_event_before_epilogue: Any = None,
                async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False) -> tuple:
        """(sums of each token's rows, sums of weights or None, event). Weights do not multiply anything."""
        on_host = self._comm.device == ucclep.Device.HOST
        with self._streams.operation(previous_event, allocate_on_comm_stream, previous_event_before_epilogue) as stream:
            out, weights = self._normal.combine(handle.routing, x, topk_weights, bias,
                                                0 if on_host else num_sms or handle.num_sms, stream)
        biases = bias if isinstance(bias, tuple) else (bias,)
        return out, weights, self._streams.finished(async_with_compute_stream, (x, topk_weights, *biases, out, weights))


def _outside(name: str) -> Any:
    def refuse(self: ElasticBuffer, *_: Any, **__: Any) -> None:
        raise NotImplementedError(f"{name}: libucclep moves rows between tokens and experts; it has no Engram, pipeline, "
                                  "all-gather or reduce-scatter")
    refuse.__name__, refuse.__doc__ = name, "Not covered: raises NotImplementedError."
    return refuse


for _name in ("engram_write", "engram_fetch", "pp_set_config", "pp_send", "pp_recv", "create_agrs_session",
              "destroy_agrs_session", "agrs_new_session", "all_gather"):
    setattr(ElasticBuffer, _name, _outside(_name))
