# SPDX-License-Identifier: Apache-2.0
"""Group: one MoE shape on one communicator."""
from __future__ import annotations

import ctypes
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Sequence
from weakref import WeakValueDictionary

from . import abi
from .communicator import Communicator, fields
from .device_object import DeviceGroup, OnDevice, Slots
from .enums import ExpertIds, Layout, Mode
from .library import check, lib
from .stream import stream_pointer
from .waiting import wait

if TYPE_CHECKING:  # for annotations only: at run time nothing is imported back
    from .handle import Handle


def limits(comm: Communicator | None, **shape: int) -> dict:
    """The memory that such a group needs and what it allows; without a communicator an estimate for nranks=."""
    result = abi.GroupLimits()
    config = abi.GroupConfig(**shape)
    check(lib.ucclEpGroupQuery(comm.pointer if comm else None, ctypes.byref(config), ctypes.byref(result)))
    return fields(result)


_numbers = itertools.count(1)
_named: WeakValueDictionary[str, Group] = WeakValueDictionary()


def named(name: str) -> Group:
    """The group of this process whose `name` it is."""
    return _named[name]


class Group(OnDevice):
    """One MoE shape with the memory that it needs; serves LL and HT, any number of handles, and many layers.

    Made and destroyed by every rank, in the same order. `shape` has the fields of ucclEpGroupConfig_t: num_experts,
    top_k, max_tokens_per_rank and max_token_bytes are required.
    """

    _device_object = DeviceGroup, lib.ucclEpGroupGetDevice

    def __init__(self, comm: Communicator, **shape: int):
        self.comm = comm
        config = abi.GroupConfig(**shape)
        pointer = ctypes.c_void_p()
        wait(lib.ucclEpGroupCreate, ctypes.byref(pointer), comm.pointer, ctypes.byref(config), stop=comm.abort)
        self._set_pointer(pointer.value, comm)
        #: What stands for it where only text is taken, as in graphs of torch.compile.
        self.name = str(next(_numbers))
        _named[self.name] = self
        self.num_experts = config.num_experts
        self.num_local_experts = config.num_experts // comm.nranks
        self.ll_max_tokens = config.ll_max_tokens_per_rank or config.max_tokens_per_rank
        # Handles that were collected, with their device_address: in whichever thread that happened, the group's own
        # thread destroys them.
        self.dropped: deque[tuple[int, int | None]] = deque()

    def _device_slots(self) -> Slots:
        return self.comm.device_slots

    def handle(self, layout: Layout, mode: Mode = Mode.AUTO, *, expert_alignment: int = 0,
               expert_ids: ExpertIds = ExpertIds.LOCAL, waves: int = 1, tile_rows: int = 0,
               memory: Any = None) -> Handle:
        """A routing decision on this group; `memory` is a uint8 tensor of handle_mem_size() bytes, or None. waves: see
        Handle.by_waves(); tile_rows: of a handle of TILES, see Handle.tiles()."""
        from .handle import Handle
        while self.alive and self.dropped:
            pointer, address = self.dropped.popleft()
            check(lib.ucclEpHandleDestroy(pointer))
            if address is not None:
                self.comm.device_slots.free.append(address)
        config = abi.HandleConfig(mode=mode, layout=layout, expert_alignment=expert_alignment, expert_ids=expert_ids,
                                  waves=waves, tile_rows=tile_rows)
        return Handle(self, config, memory)

    def handle_mem_size(self, layout: Layout, mode: Mode = Mode.AUTO, expert_alignment: int = 0, waves: int = 1,
                        tile_rows: int = 0) -> int:
        """Bytes of a handle's `memory`."""
        config = abi.HandleConfig(mode=mode, layout=layout, expert_alignment=expert_alignment, waves=waves,
                                  tile_rows=tile_rows)
        size = ctypes.c_size_t()
        check(lib.ucclEpHandleMemSize(self.pointer, ctypes.byref(config), ctypes.byref(size)))
        return size.value

    def routing_counts(self, topk_idx: Any, *, tokens_per_rank: Any = None, tokens_per_expert: Any = None,
                       is_token_in_rank: Any = None, tokens_per_logical_expert: Any = None,
                       stream: Any = None) -> None:
        """Counts of a routing into the tensors that are given, without communication."""
        comm = self.comm
        counts = abi.RoutingCounts()
        held = []
        for name, array in (("tokens_per_rank", tokens_per_rank), ("tokens_per_expert", tokens_per_expert),
                            ("is_token_in_rank", is_token_in_rank),
                            ("tokens_per_logical_expert", tokens_per_logical_expert)):
            if array is not None:
                held.append(comm.view(array, name, output=True))
                setattr(counts, name, ctypes.addressof(held[-1].struct))
        ids = comm.view(topk_idx, "topk_idx")
        check(lib.ucclEpGetRoutingCounts(self.pointer, ids.struct, ctypes.byref(counts), stream_pointer(stream)))

    def set_expert_map(self, logical_to_physical: Any, copies: Any, stream: Any = None) -> None:
        """From now on ids in topk_idx are logical experts, of which each has copies. None and None: they are physical.

        logical_to_physical is int32 [num_logical_experts, C], copies int32 [num_logical_experts], in this rank's memory;
        both are read in the order of the stream, so they may change once the stream is past the call. Of eplb's results:

            physical, logical, copies = rebalance_experts(loads, num_replicas, num_groups, num_nodes, num_gpus)
            group.set_expert_map(logical[layer].to(device, torch.int32), copies[layer].to(device, torch.int32))
        """
        views = [None if array is None else self.comm.view(array, name)
                 for name, array in (("logical_to_physical", logical_to_physical), ("copies", copies))]
        pointers = [None if view is None else ctypes.byref(view.struct) for view in views]
        check(lib.ucclEpGroupSetExpertMap(self.pointer, *pointers, stream_pointer(stream)))

    def mask_query(self, mask: Any, stream: Any = None) -> None:
        """Writes R ints to an int32 tensor: 1 = active, 0 = masked."""
        view = self.comm.view(mask, "mask", output=True)
        if view.contiguous_bytes() != 4 * self.comm.nranks:
            raise ValueError(f"mask has {view.contiguous_bytes()} bytes, expected {self.comm.nranks} int32")
        check(lib.ucclEpMaskQuery(self.pointer, view.struct.data, stream_pointer(stream)))

    def mask_update(self, mask: Sequence[int], stream: Any = None) -> None:
        """Masks the ranks whose entry is 0."""
        if len(mask) != self.comm.nranks:
            raise ValueError(f"mask has {len(mask)} entries, expected {self.comm.nranks}")
        check(lib.ucclEpMaskUpdate(self.pointer, (ctypes.c_int * len(mask))(*mask), stream_pointer(stream)))

    def mask_clear(self, stream: Any = None) -> None:
        """[collective] Brings back all ranks whose process lived."""
        wait(lib.ucclEpMaskClear, self.pointer, stream_pointer(stream), stop=self.comm.abort)

    def destroy(self) -> None:
        """[collective] Destroys its handles too."""
        self._end_by(lib.ucclEpGroupDestroy, self.pointer, stop=self.comm.abort)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.alive:
            self.destroy()
