# SPDX-License-Identifier: Apache-2.0
"""EPBuffer: one dispatch and one combine, with or without a row for each expert."""
from __future__ import annotations

from typing import Any, NamedTuple, Union

import torch
from ucclep import Layout

from ..data_errors import check_alignment, check_ids
from ..ep_handles import EPHandle
from ..events import EventHandle, EventOverlap
from ..high_throughput import Routing, aligned, most_rows
from ..rows import Rows
from .base import BufferBase, outside

#: SMs that leave room for computing beside the kernels.
SMS_BESIDE_COMPUTE = 32


class Call(NamedTuple):
    """What a dispatch is about, and when it runs."""

    num_experts: Union[int, None]
    tokens: Union[int, None] = None
    alignment: Union[int, None] = None
    num_sms: int = 0
    expand: bool = False
    cpu_sync: Union[bool, None] = None
    columns: bool = False
    copy_ids: bool = False
    previous: tuple = (None, None)
    asynchronous: bool = False
    on_comm_stream: bool = False
    rows: Union[int, None] = None  # of the tensors that are made; None: as many as come, or can come
    with_ids: bool = True  # whether rows of experts carry their token's ids, for recv_src_metadata


class ExpertBuffer(BufferBase):
    """What the buffers have in common whose dispatch has one layout by ranks, and one by experts."""

    _group_settings: dict = {}

    def _open(self, num_bytes: int | None, num_max_tokens_per_rank: int, hidden: int, deterministic: bool,
              allow_hybrid_mode: bool, allow_multiple_reduction: bool, prefer_overlap_with_compute: bool,
              num_allocated_qps: int, timeout_s: int) -> None:
        self.rank_idx, self.num_ranks = self._comm.rank, self._comm.nranks
        self.num_bytes = num_bytes or self.get_buffer_size_hint(self.group, num_max_tokens_per_rank, hidden)
        self.num_max_tokens_per_rank = num_max_tokens_per_rank
        self.deterministic, self.allow_hybrid_mode = deterministic, allow_hybrid_mode
        self.allow_multiple_reduction = allow_multiple_reduction
        self.prefer_overlap_with_compute = prefer_overlap_with_compute
        self.num_allocated_qps = num_allocated_qps
        self.num_scaleout_ranks, self.num_scaleup_ranks = self.get_logical_domain_size()
        self.scaleout_rank_idx, self.scaleup_rank_idx = divmod(self.rank_idx, self.num_scaleup_ranks)
        self.num_rdma_ranks, self.num_nvlink_ranks = self.get_physical_domain_size()
        self._group_settings = {"timeout_ms": 1000 * timeout_s}

    @staticmethod
    def capture() -> EventHandle:
        """An event of the current stream."""
        return EventHandle()

    def get_physical_domain_size(self) -> tuple:
        """(domains, ranks of a domain): inside of one, ranks reach each other's memory."""
        size = self._comm.info()["domain_size"]
        return self._comm.nranks // size, size

    def get_logical_domain_size(self) -> tuple:
        """(1, ranks): counts are by rank."""
        return 1, self._comm.nranks

    @staticmethod
    def get_buffer_size_hint(group: Any, num_max_tokens_per_rank: int, hidden: int, num_topk: int = 0,
                             use_fp8_dispatch: bool = False, allow_hybrid_mode: bool = True,
                             allow_multiple_reduction: bool = True) -> int:
        """num_bytes: ranks x bytes of a bf16 row, of an fp32 one without allow_multiple_reduction, x tokens."""
        nranks = group.size() if callable(getattr(group, "size", None)) else group.Get_size()
        return nranks * (2 if allow_multiple_reduction else 4) * hidden * num_max_tokens_per_rank

    def get_theoretical_num_qps(self, num_sms: int) -> int:
        """The library deals out connections itself."""
        return max(1, self.num_allocated_qps)

    def _num_sms(self) -> int:
        if self._on_host:
            return SMS_BESIDE_COMPUTE
        most = torch.cuda.get_device_properties(self._streams.device).multi_processor_count
        return min(SMS_BESIDE_COMPUTE, most) if self.prefer_overlap_with_compute else most

    def _barrier(self, with_cpu_sync: bool) -> None:
        """Each rank sends a row to each."""
        words = torch.zeros((self.num_ranks, 1), dtype=torch.int32, device=self._streams.device)
        with self._streams.operation(None, False) as stream:
            _, held = self._normal.share(words, stream)
        self._streams.finished(True, (words, *held)).current_stream_wait()
        if with_cpu_sync:
            self._comm.synchronize(self._streams.here())

    def _dispatch(self, call: Call, x: Any, topk_idx: torch.Tensor | None, topk_weights: torch.Tensor | None,
                  cumulative: torch.Tensor | None, handle: EPHandle | None) -> tuple:
        rows = Rows.of(x)
        if handle is not None and (topk_idx is not None or call.cpu_sync):
            raise ValueError("dispatch: with a handle topk_idx must be None and do_cpu_sync must not be True: the handle has "
                             "the routing")
        if handle is not None and handle.expanded != call.expand:
            raise ValueError(f"dispatch: do_expand is {call.expand}, expected {handle.expanded} as in the handle")
        if handle is None and (topk_idx is None or call.num_experts is None):
            raise ValueError("dispatch needs topk_idx and num_experts, or a handle")
        check_alignment(call.alignment)
        if handle is not None:
            handle.check_ids()
            for name, asked in (("num_experts", call.num_experts), ("expert_alignment", call.alignment),
                                ("num_max_tokens_per_rank", call.tokens)):
                if asked is not None and asked != getattr(handle, name):
                    raise ValueError(f"dispatch: {name} is {asked}, but the handle has {getattr(handle, name)}: leave it out")
        num_sms = 0 if self._on_host else call.num_sms
        previous, also = call.previous
        with self._streams.operation(previous, call.on_comm_stream, also) as stream:
            used = self._route(call, call.num_experts or 0, rows, topk_idx, stream) if handle is None else handle
            routing = used.routing
            recv_ids = None if call.expand else used.topk_idx.new_empty((routing.rows, routing.top_k))
            shape = (routing.rows,) if call.expand else (routing.rows, routing.top_k)
            recv_weights = None if topk_weights is None else topk_weights.new_empty(shape)
            # Rows of experts do not carry the token's ids: with a new routing they travel as scales.
            with_ids = call.expand and call.with_ids and handle is None
            with self._streams.on_comm_stream():
                src_info = None
                if handle is None:
                    src_info = torch.full((routing.rows,), -1, dtype=torch.int64, device=used.topk_idx.device)
                sent = rows.with_words(used.topk_idx.int()) if with_ids else rows
                received = self._normal.dispatch(
                    routing, sent, num_sms, stream, call.columns, topk_weights=topk_weights, src_info=src_info,
                    out_topk_idx=recv_ids, out_topk_weights=recv_weights, cumulative_tokens_per_expert=cumulative)
            got = received.like(rows, call.columns) if with_ids else received

        def finish() -> None:
            if src_info is not None:
                used.finish(src_info, received.words(rows) if with_ids else None)
            if with_ids and got.scales is not None:
                got.scales.data.copy_(received.scales[:, :got.scales.shape[1]])

        event = self._streams.finished(
            call.asynchronous,
            (*rows, *sent, topk_idx, topk_weights, *received, *got, used.topk_idx, recv_ids, recv_weights, src_info,
             used.psum_num_recv_tokens_per_scaleup_rank, used.psum_num_recv_tokens_per_expert,
             routing.recv_tokens_per_rank, routing.recv_tokens_per_expert), finish)
        return got.result(), recv_ids, recv_weights, used, event

    def _row_bytes(self, rows: Rows, top_k: int, with_ids: bool) -> int:
        """Of the largest row that is sent either way."""
        carried = aligned(rows.bytes_per_row + 4 * top_k, 16) if with_ids else rows.bytes_per_row
        return carried if self.allow_multiple_reduction else max(carried, 4 * rows.hidden)

    def _route(self, call: Call, num_experts: int, rows: Rows, topk_idx: Any, stream: Any) -> EPHandle:
        tokens, top_k = topk_idx.shape
        row_bytes = self._row_bytes(rows, top_k, call.expand and call.with_ids)
        check_ids("dispatch", topk_idx, num_experts)
        most = call.tokens or self.num_max_tokens_per_rank
        room = most or self._normal.room("dispatch", rows.bytes_per_row, tokens, self.num_bytes, "num_bytes")
        if tokens > room:
            raise ValueError(f"dispatch: x has {tokens} tokens, expected at most num_max_tokens_per_rank = {room}: enlarge it")
        # One group serves calls of any smaller bound: programs round it up to their batch.
        group = self._normal.group("dispatch", num_experts, top_k, row_bytes, max(room, self.num_max_tokens_per_rank),
                                   **self._group_settings)
        layout = Layout.EXPERT_MAJOR if call.expand else Layout.FLAT
        alignment = call.alignment or 1
        routing: Routing = self._normal.update("dispatch", group, topk_idx, layout, alignment, stream)
        counts: list = []
        if call.cpu_sync is not False:
            routing.rows, counts = routing.core.wait_counts()
        elif call.expand:
            routing.rows = most_rows(routing, room, alignment)
        else:
            routing.rows = self.num_ranks * room
        if call.rows is not None:
            routing.rows = call.rows
        if call.copy_ids:
            with self._streams.on_comm_stream():
                topk_idx = topk_idx.clone()
        return EPHandle(routing, call.expand, alignment, room, call.num_sms, topk_idx, counts)

    def _combine(self, x: torch.Tensor, handle: EPHandle, topk_weights: torch.Tensor | None, bias: Any, num_sms: int,
                 previous: tuple, asynchronous: bool, on_comm_stream: bool) -> tuple:
        handle.check_ids()
        exact = not self.allow_multiple_reduction and (handle.do_expand or self._comm.info()["num_nodes"] > 1)
        num_sms = 0 if self._on_host else num_sms or handle.num_sms
        with self._streams.operation(previous[0], on_comm_stream, previous[1]) as stream:
            rows, weights = x, topk_weights
            if handle.changed:
                with self._streams.on_comm_stream():
                    rows, weights = handle.rows_of(x, topk_weights, exact)
            done = self._normal.combine(handle.routing, rows, weights, bias, num_sms, stream, x.dtype if exact else None)
        return done.tokens, done.weights, self._streams.finished(asynchronous, (x, topk_weights, *done.held), done.finish)


class EPBuffer(ExpertBuffer):
    """DeepEP 2.5's buffer for expert parallelism: dispatch and combine."""

    def __init__(self, group: Any, num_bytes: int | None = None, num_max_tokens_per_rank: int = 0, hidden: int = 0,
                 num_topk: int = 0, use_fp8_dispatch: bool = False, lb_allocation_plan_or_num_bytes: Any = 0,
                 deterministic: bool = False, allow_hybrid_mode: bool = True, allow_multiple_reduction: bool = True,
                 prefer_overlap_with_compute: bool = True, sl_idx: int | None = None, num_allocated_qps: int = 0,
                 num_cpu_timeout_secs: int = 300, num_gpu_timeout_secs: int = 100, explicitly_destroy: bool = False,
                 comm: Any = None) -> None:
        """`num_max_tokens_per_rank`, or else `num_bytes`, limits the tokens of a call.

        Without `allow_multiple_reduction` a sum is rounded once: where it would be rounded more often, rows return as fp32.
        Results are always deterministic. allow_hybrid_mode, sl_idx and num_allocated_qps are hints without effect. `comm`,
        of mpi4py, may stand for `group`.
        """
        if lb_allocation_plan_or_num_bytes:
            raise NotImplementedError("lb_allocation_plan_or_num_bytes must be 0: deep_ep does not move copies of experts")
        super().__init__(group, comm, 1000 * num_cpu_timeout_secs, explicitly_destroy)
        self._open(num_bytes, num_max_tokens_per_rank, hidden, deterministic, allow_hybrid_mode, allow_multiple_reduction,
                   prefer_overlap_with_compute, num_allocated_qps, num_gpu_timeout_secs)

    def get_theoretical_num_sms(self, num_experts: int, num_topk: int, num_scaleout_topk: int = 0, rdma_gbs: float = 0,
                                nvlink_gbs: float = 0, sm_read_gbs: float = 0, sm_write_gbs: float = 0) -> int:
        """SMs of an operation whose num_sms is 0."""
        return self._num_sms()

    def barrier(self, wait_comm_stream: bool = True, with_cpu_sync: bool = False, sequential: bool = True,
                context_idx: int | None = None) -> None:
        """Later work of the current stream, and with `with_cpu_sync` of the CPU, runs when all ranks have come here."""
        self._barrier(with_cpu_sync)

    def dispatch(self, x: Any, topk_idx: torch.Tensor | None = None, topk_weights: torch.Tensor | None = None,
                 cumulative_local_expert_recv_stats: torch.Tensor | None = None, num_experts: int | None = None,
                 num_max_tokens_per_rank: int | None = None, expert_alignment: int | None = None, num_sms: int = 0,
                 num_qps: int = 0, previous_event: Any = None, async_with_compute_stream: bool = False,
                 allocate_on_comm_stream: bool = False, handle: EPHandle | None = None, do_handle_copy: bool = False,
                 do_cpu_sync: bool | None = None, do_expand: bool = False, do_zero_padding: bool = False,
                 use_tma_aligned_col_major_sf: bool = False, defer_epilogue: bool = False) -> Any:
        """(rows, topk_idx, topk_weights, handle, event), as of ElasticBuffer.dispatch.

        With `defer_epilogue` only the event: its current_stream_wait() returns the others. The CPU waits for counts here,
        not there.
        """
        if do_zero_padding and not do_expand:
            raise ValueError("dispatch: do_zero_padding needs do_expand: other rows have no padding")
        call = Call(num_experts, num_max_tokens_per_rank, expert_alignment, num_sms, do_expand, do_cpu_sync,
                    use_tma_aligned_col_major_sf, do_handle_copy, (previous_event, None), async_with_compute_stream,
                    allocate_on_comm_stream)
        deferred = _deferrable(defer_epilogue, async_with_compute_stream)
        return deferred(self._dispatch(call, x, topk_idx, topk_weights, cumulative_local_expert_recv_stats, handle))

    def combine(self, x: torch.Tensor, handle: EPHandle, topk_weights: torch.Tensor | None = None, bias: Any = None,
                num_sms: int = 0, num_qps: int = 0, previous_event: Any = None, async_with_compute_stream: bool = False,
                allocate_on_comm_stream: bool = False, defer_epilogue: bool = False) -> Any:
        """(sums of each token's rows, sums of weights or None, event). Weights do not multiply anything.

        With `defer_epilogue` only the event: its current_stream_wait() returns the others.
        """
        deferred = _deferrable(defer_epilogue, async_with_compute_stream)
        return deferred(self._combine(x, handle, topk_weights, bias, num_sms, (previous_event, None),
                                      async_with_compute_stream, allocate_on_comm_stream))

    lb_get_theoretical_num_sms = outside("lb_get_theoretical_num_sms", "copies of experts that deep_ep moves")
    lb_prefetch_weights = outside("lb_prefetch_weights", "copies of experts that deep_ep moves")
    lb_reduce_grads = outside("lb_reduce_grads", "copies of experts that deep_ep moves")


def _deferrable(deferred: bool, asynchronous: bool) -> Any:
    """What a call returns of its results, the last of which is the event."""
    if deferred and not asynchronous:
        raise ValueError("defer_epilogue needs async_with_compute_stream=True: the results come with the event")

    def hide(results: tuple) -> EventOverlap:
        *others, event = results
        event.register_hook_after_wait(lambda: tuple(others))
        return event

    return hide if deferred else lambda results: results
