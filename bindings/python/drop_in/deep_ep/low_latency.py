# SPDX-License-Identifier: Apache-2.0
"""The low-latency mode, over LL handles."""
from __future__ import annotations

import itertools
from typing import Any, Callable

import torch
import ucclep
from ucclep import Layout, Mode, Quant
from ucclep.lifetime import Unique

from .data_errors import check_ids, version_of
from .events import EventOverlap
from .groups import SHAPES, Groups
from .rows import FP8, fp8_view

LIVE_RESULTS = 2
TOO_OLD = f"the handle is too old: at most {LIVE_RESULTS} results of low_latency_dispatch are alive, of at most {SHAPES} shapes"
#: With masks a rank that is so late is masked, and several that are missing at once. UCCLEP_TIMEOUT_MS goes before it.
MASK_AFTER_MS = 20000


class Ids:
    """The ids of a dispatch. A combine takes them again; rows whose ids a program has set to -1 in between do not count."""

    def __init__(self, topk_idx: torch.Tensor):
        self._given = topk_idx
        self._version = version_of(topk_idx)
        self._copy = None if topk_idx.is_cuda else topk_idx.clone()

    def weights(self, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        """The weights of a combine with these ids."""
        if topk_idx is self._given and version_of(topk_idx) == self._version:
            return topk_weights
        if self._copy is not None and (topk_idx.shape != self._copy.shape or
                                       ((topk_idx != self._copy) & (topk_idx >= 0)).any()):
            raise ValueError("low_latency_combine: topk_idx differs from that of the dispatch, expected the same, or -1 for "
                             "entries to leave out: rows return as they were sent")
        return torch.where(topk_idx >= 0, topk_weights, torch.zeros_like(topk_weights))


class Slot(Unique):
    """An LL handle that is used again after the other slots of its group."""

    def __init__(self, core: ucclep.Handle):
        self.core = core
        self.uses = 0
        self.combine_buffer: torch.Tensor | None = None
        self.ids: Ids | None = None  # of the dispatch
        self.src_info: torch.Tensor | None = None  # of the dispatch; by its memory a tuple that was put together again is known
        #: The receive phase of the operation in flight. It holds the tensors that it writes, whether or not the caller does.
        self.pending: Callable[[], None] | None = None
        self.kind = ""  # of that operation

    def receive(self) -> None:
        """The receive phase, where one is pending."""
        receive, self.pending = self.pending, None
        if receive is not None:
            receive()


class LowLatencyHandle(Unique, tuple):
    """(src_info, layout_range, num_max_dispatch_tokens_per_rank, hidden, num_experts), and the slot behind it."""

    slot: Slot
    use: int

    def __new__(cls, fields: tuple, slot: Slot) -> LowLatencyHandle:
        handle = super().__new__(cls, fields)
        handle.slot, handle.use = slot, slot.uses
        return handle

    def live_slot(self) -> Slot:
        if self.use != self.slot.uses:
            raise RuntimeError(TOO_OLD)
        return self.slot


class SizeHint(int):
    """Bytes, and the shape for which they are enough: with it a buffer can allocate before its first call."""

    shape: dict


def shape_of(max_tokens: int, hidden: int, num_experts: int, top_k: int) -> dict:
    """A group for up to a multiple of 8 experts a token: most models then have one shape."""
    return dict(num_experts=num_experts, top_k=min(-(-top_k // 8) * 8, num_experts), max_tokens_per_rank=1,
                ll_max_tokens_per_rank=max_tokens, max_token_bytes=2 * hidden)


def size_hint(max_tokens: int, hidden: int, num_ranks: int, num_experts: int) -> SizeHint:
    """num_rdma_bytes: what a group of this shape takes on each rank."""
    shape = shape_of(max_tokens, hidden, num_experts, 8)
    hint = SizeHint(ucclep.limits(None, nranks=num_ranks, **shape)["device_bytes"])
    hint.shape = shape
    return hint


class LowLatency:
    def __init__(self, comm: ucclep.Communicator, groups: Groups, streams: Any, enable_mask: bool, room: int):
        self._comm = comm
        self._groups = groups
        self._streams = streams
        self._masks = {"enable_mask": 1, "timeout_ms": MASK_AFTER_MS} if enable_mask else {}
        self._slots: dict = {}
        groups.before_destroy.append(self._forget)
        if enable_mask and isinstance(room, SizeHint):  # so that a rank may be masked that never dispatches
            self._group(room.shape)

    def _group(self, shape: dict) -> ucclep.Group:
        group = self._groups.get("low_latency_dispatch", **shape, **self._masks)
        self._slots.setdefault(group, [])
        return group

    def meet(self) -> None:
        """[collective] With masks, ranks that do not come here are masked: each sends the others a header, and no row."""
        for group in self._mask_groups() if self._masks else ():
            rows = torch.empty((group.num_local_experts, self._comm.nranks * group.ll_max_tokens, 8), dtype=torch.bfloat16,
                               device=self._streams.device)
            ids = torch.empty((0, 1), dtype=torch.int64, device=rows.device)
            lease = self._groups.lease("clean_low_latency_buffer", group, Layout.EXPERT_MAJOR, Mode.LL)
            self._run("dispatch", Slot(lease.handle), False, False, (rows, ids), None,
                      lambda stream: lease.handle.dispatch(rows[0, :0], rows, topk_idx=ids, stream=stream))

    def _forget(self, group: ucclep.Group) -> None:
        for slot in self._slots.pop(group, ()):
            slot.receive()
            slot.uses += 1

    def _next_slot(self, group: ucclep.Group) -> Slot:
        slots = self._slots[group]
        if not slots:
            slots.extend(Slot(group.handle(Layout.EXPERT_MAJOR, Mode.LL)) for _ in range(LIVE_RESULTS))
        slot = min(slots, key=lambda slot: slot.uses)
        slot.uses += 1
        return slot

    def dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor, max_tokens: int, num_experts: int,
                 cumulative: torch.Tensor | None, wait_ns: torch.Tensor | None, use_fp8: bool, round_scale: bool,
                 use_ue8m0: bool, async_finish: bool, return_recv_hook: bool) -> tuple:
        hidden = x.shape[1]
        if async_finish and return_recv_hook:
            raise ValueError("async_finish and return_recv_hook exclude each other: set one of them to False")
        if use_ue8m0 and not round_scale:
            raise ValueError("use_ue8m0 needs round_scale: the scales are powers of two")
        check_ids("low_latency_dispatch", topk_idx, num_experts)
        group = self._group(shape_of(max_tokens, hidden, num_experts, topk_idx.shape[1]))
        experts, ranks = group.num_local_experts, self._comm.nranks
        capacity = ranks * max_tokens
        slot = self._next_slot(group)
        slot.ids = Ids(topk_idx)
        rows = x.new_empty((experts, capacity, hidden), dtype=FP8 if use_fp8 else x.dtype)
        scales = self._scales(x, experts, capacity, use_ue8m0) if use_fp8 else None
        counts = x.new_empty(experts, dtype=torch.int32)
        counts_by_rank = x.new_empty((experts, ranks), dtype=torch.int64)
        layout_range = torch.empty_like(counts_by_rank)
        slot.src_info = src_info = x.new_empty((experts, capacity), dtype=torch.int32)

        def find_ranges() -> None:
            begins = counts_by_rank.cumsum(1) - counts_by_rank
            torch.add(begins * 2 ** 32, counts_by_rank, out=layout_range.data)

        event, hook = self._run(
            "dispatch", slot, async_finish, return_recv_hook,
            (x, topk_idx, rows, scales, counts, counts_by_rank, layout_range, src_info, cumulative, wait_ns), find_ranges,
            lambda stream: slot.core.dispatch(
                x, fp8_view(rows) if use_fp8 else rows, topk_idx=topk_idx, out_scales=scales, src_info=src_info,
                cumulative_tokens_per_expert=cumulative, wait_ns=wait_ns,
                counters={"tokens_per_expert": counts, "tokens_per_expert_rank": counts_by_rank},
                quant=Quant.FP8_128 if use_fp8 else Quant.NONE, round_scale=round_scale, send_only=return_recv_hook,
                stream=stream))
        handle = LowLatencyHandle((src_info, layout_range, max_tokens, hidden, num_experts), slot)
        return (rows, scales) if use_fp8 else rows, counts, handle, event, hook

    @staticmethod
    def _scales(x: torch.Tensor, experts: int, capacity: int, use_ue8m0: bool) -> torch.Tensor:
        """Column-major, as grouped GEMMs take them; UE8M0: four exponents in an int32."""
        width = -(-x.shape[1] // 512) if use_ue8m0 else x.shape[1] // 128
        dtype = torch.int32 if use_ue8m0 else torch.float32
        return x.new_empty((experts, width, capacity), dtype=dtype).transpose(1, 2)

    def combine(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: Any, zero_copy: bool,
                async_finish: bool, return_recv_hook: bool, out: torch.Tensor | None, wait_ns: torch.Tensor | None) -> tuple:
        slot = self._slot_of(handle)
        if async_finish and return_recv_hook:
            raise ValueError("async_finish and return_recv_hook exclude each other: set one of them to False")
        if slot.ids is not None:
            topk_weights = slot.ids.weights(topk_idx, topk_weights)
        if zero_copy:
            x = self.combine_buffer(handle)
        if out is None:
            out = x.new_empty((topk_idx.shape[0], x.shape[-1]))
        event, hook = self._run(
            "combine", slot, async_finish, return_recv_hook, (x, topk_weights, out, wait_ns), None,
            lambda stream: slot.core.combine(x, out, topk_weights=topk_weights, wait_ns=wait_ns,
                                             send_only=return_recv_hook, stream=stream))
        return out, event, hook

    def _slot_of(self, handle: Any) -> Slot:
        if isinstance(handle, LowLatencyHandle):
            return handle.live_slot()
        if not isinstance(handle, (tuple, list)) or len(handle) != 5 or not isinstance(handle[0], torch.Tensor):
            raise TypeError(f"handle is a {type(handle).__name__}, expected the tuple that low_latency_dispatch returned")
        for slot in itertools.chain(*self._slots.values()):
            if slot.src_info is not None and slot.src_info.data_ptr() == handle[0].data_ptr():
                return slot
        raise RuntimeError(f"{TOO_OLD}; or its first tensor is a copy")

    def combine_buffer(self, handle: Any) -> torch.Tensor:
        slot = self._slot_of(handle)
        src_info, _, _, hidden, _ = handle
        shape = (*src_info.shape, hidden)
        if slot.combine_buffer is None or slot.combine_buffer.shape != shape:
            slot.combine_buffer = src_info.new_empty(shape, dtype=torch.bfloat16)
        return slot.combine_buffer

    def _run(self, kind: str, slot: Slot, async_finish: bool, return_recv_hook: bool, tensors: tuple,
             finish: Callable | None, start: Callable[[Any], None]) -> tuple:
        """Starts an operation; (event, hook)."""
        # What the caller has not received is received when its handle, or with masks its place, is needed.
        slot.receive()
        for other in self._slots[slot.core.group] if self._masks else ():
            if other.kind == kind:
                other.receive()
        if not return_recv_hook:
            with self._streams.operation(None, False) as stream:
                start(stream)
            return self._streams.finished(async_finish, tensors, finish), None
        # Both phases run on the caller's stream: what it does in between runs while rows are under way.
        start(self._streams.begin_here())

        def receive(_held: tuple = tensors) -> None:
            slot.core.complete(self._streams.here())
            self._streams.finished_here(finish)

        kept = [self._streams.life()]

        def hook() -> None:
            if slot.pending is receive:
                slot.receive()
            kept.clear()

        slot.pending, slot.kind = receive, kind
        return EventOverlap(), hook

    # ---- masks: 1 is masked here, and active in the library ----

    def mask_update(self, rank: int, mask: bool) -> None:
        groups = self._mask_groups()
        if not groups:
            raise RuntimeError("there are no masks before the first low_latency_dispatch, which allocates them: to allocate "
                               "at once, make the Buffer with the num_rdma_bytes that get_low_latency_rdma_size_hint "
                               "returned")
        if not 0 <= rank < self._comm.nranks:
            raise ValueError(f"rank_to_mask is {rank}, expected a rank of {self._comm.nranks}")
        for group in groups:
            active = self._active(group).tolist()
            if not mask and not active[rank]:
                raise NotImplementedError(f"rank {rank} is masked, and one rank cannot unmask it: call "
                                          "low_latency_clean_mask_buffer on all ranks")
            if mask and active[rank]:
                active[rank] = 0
                group.mask_update(active, self._streams.here())

    def mask_query(self, status: torch.Tensor) -> None:
        status.zero_()
        for group in self._mask_groups():
            status |= 1 - self._active(group).to(status)

    def mask_clear(self) -> None:
        for group in self._mask_groups():
            group.mask_clear(self._streams.here())

    def _active(self, group: ucclep.Group) -> torch.Tensor:
        active = torch.empty(self._comm.nranks, dtype=torch.int32, device=self._streams.device)
        group.mask_query(active, self._streams.here())
        self._streams.finished_here(None)
        return active

    def _mask_groups(self) -> list:
        """None before the first call of low_latency_dispatch: then no rank is masked."""
        if not self._masks:
            raise RuntimeError("masks need a Buffer that was made with enable_shrink=True")
        return list(self._slots)
