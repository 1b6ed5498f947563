# SPDX-License-Identifier: Apache-2.0
"""Handle: one routing decision, and the operations on it."""
from __future__ import annotations

import ctypes
import struct
from ctypes import addressof, byref
from typing import TYPE_CHECKING, Any, Iterator, Mapping

from . import abi
from .device_object import DeviceHandle, OnDevice, Slots
from .enums import Quant
from .library import check, lib
from .stream import stream_pointer
from .tensor import PLACE, WRITABLE, Facts, describe, facts_of
from .waiting import wait

if TYPE_CHECKING:  # for annotations only: at run time nothing is imported back
    from .group import Group

# One call for all pointers of a struct: each field of its own would cost as much.
_POINTERS = [struct.Struct(f"={count}Q").pack_into for count in range(8)]

# A handle has room for the descriptions of a call's tensors: of inputs, outputs and counters from these places on. No
# struct has more of them than _POINTERS has forms.
_TENSOR_BYTES = ctypes.sizeof(abi.Tensor)
_INPUTS, _OUTPUTS, _COUNTED, _ROOM = 0, 8, 16, 24

COUNTERS = ("tokens_per_expert", "expert_offsets", "tokens_per_rank", "recv_total", "recv_total_host",
            "tokens_per_expert_unpadded", "tokens_per_expert_rank")

# The tensors of each struct, by name, in its order.
_DISPATCH_IN = ("tokens", "scales", "topk_weights", "topk_idx")
_DISPATCH_OUT = ("tokens", "scales", "topk_idx", "topk_weights", "src_info", "cumulative_tokens_per_expert", "wait_ns")
_COMBINE_IN = ("tokens", "scales", "topk_weights", "bias", "bias2")
_COMBINE_OUT = ("tokens", "topk_weights", "wait_ns")


class Handle(OnDevice):
    """One routing decision of a group: made by Group.handle(). Shapes are those of include/ucclep/ucclep.h.

    Operations are enqueued on `stream` and return at once: tensors stay alive and untouched until they have ended.
    `counters` maps names of COUNTERS to int32 or int64 tensors; recv_total_host is an address.
    """

    _device_object = DeviceHandle, lib.ucclEpHandleGetDevice

    def __init__(self, group: Group, config: abi.HandleConfig, memory: Any):
        self.group = group
        self.waves = max(1, config.waves)
        self._comm = group.comm
        self._memory = self._comm.view(memory, "memory", output=True) if memory is not None else None
        if self._memory is not None:
            config.handle_mem = addressof(self._memory.struct)
        pointer = ctypes.c_void_p()
        check(lib.ucclEpHandleCreate(byref(pointer), group.pointer, byref(config)))
        self._set_pointer(pointer.value, group)
        # The structs of calls, made once: a call fills in addresses.
        self._dispatch_in, self._dispatch_out = abi.DispatchInputs(), abi.DispatchOutputs()
        self._combine_in, self._combine_out = abi.CombineInputs(), abi.CombineOutputs()
        self._dispatch_config, self._combine_config = abi.DispatchConfig(), abi.CombineConfig()
        self._dispatch_settings = self._combine_settings = None  # what the configs hold
        self._counters = abi.Counters()
        self._tensors = (abi.Tensor * _ROOM)()
        self._tensors_at = addressof(self._tensors)

    def _fill(self, record: Any, first: int, names: tuple, tensors: tuple) -> list[Facts]:
        """Describes the tensors, and writes where into the struct, behind its size and magic. They live with what it returns."""
        held, addresses = [], []
        comm, room, offset = self._comm, self._tensors, first * _TENSOR_BYTES
        foreign = comm.foreign
        for array in tensors:
            if array is None:
                addresses.append(0)
            else:
                facts = facts_of(array)
                if facts[PLACE] == foreign or not facts[WRITABLE]:
                    comm.check(facts, names[len(addresses)], first != _INPUTS)
                describe(room, offset, facts)
                held.append(facts)
                addresses.append(self._tensors_at + offset)
            offset += _TENSOR_BYTES
        _POINTERS[len(addresses)](record, 8, *addresses)
        return held

    def _fill_counters(self, counters: Mapping[str, Any] | None) -> tuple:
        """The struct's address and what it points to."""
        if not counters:
            return None, None
        unknown = set(counters) - set(COUNTERS)
        if unknown:
            raise TypeError(f"counters has {', '.join(sorted(unknown))}, expected some of {', '.join(COUNTERS)}")
        held = self._fill(self._counters, _COUNTED, COUNTERS,
                          tuple(None if name == "recv_total_host" else counters.get(name) for name in COUNTERS))
        self._counters.recv_total_host = counters.get("recv_total_host")
        return addressof(self._counters), held

    def update(self, topk_idx: Any, *, counters: Mapping[str, Any] | None = None, stream: Any = None) -> None:
        """Takes a routing: [T, K] int32 or int64, global expert ids, -1 = dropped. In HT it exchanges counts."""
        ids = self._comm.view(topk_idx, "topk_idx")
        address, _held = self._fill_counters(counters)
        check(lib.ucclEpHandleUpdate(self.pointer, ids.struct, self._counters if address else None,
                                     stream_pointer(stream)))

    def wait_counts(self) -> tuple[int, list[int]]:
        """Waits for the counts of the last HT update: rows in all, and of each local expert."""
        total = ctypes.c_int64()
        per_expert = (ctypes.c_int64 * self.group.num_local_experts)()
        wait(lib.ucclEpHandleWaitCounts, self.pointer, byref(total), per_expert, stop=self.group.comm.abort)
        return total.value, list(per_expert)

    def dispatch(self, tokens: Any, out: Any, *, scales: Any = None, topk_weights: Any = None, topk_idx: Any = None,
                 out_scales: Any = None, out_topk_idx: Any = None, out_topk_weights: Any = None, src_info: Any = None,
                 cumulative_tokens_per_expert: Any = None, wait_ns: Any = None,
                 counters: Mapping[str, Any] | None = None, quant: Quant = Quant.NONE, round_scale: bool = False,
                 backward: bool = False, send_only: bool = False, num_sms: int = 0, stream: Any = None) -> None:
        """Sends every token to the ranks of its experts. With `topk_idx` it updates first, in the same call."""
        inputs, outputs, config = self._dispatch_in, self._dispatch_out, self._dispatch_config
        _held = (self._fill(inputs, _INPUTS, _DISPATCH_IN, (tokens, scales, topk_weights, topk_idx)),
                 self._fill(outputs, _OUTPUTS, _DISPATCH_OUT,
                            (out, out_scales, out_topk_idx, out_topk_weights, src_info, cumulative_tokens_per_expert, wait_ns)))
        outputs.counters, _counted = self._fill_counters(counters)
        settings = send_only, quant, round_scale, backward, num_sms
        if settings != self._dispatch_settings:
            config.send_only, config.quant, config.round_scale, config.pass_, config.num_sms = settings
            self._dispatch_settings = settings
        check(lib.ucclEpDispatch(self.pointer, inputs, outputs, config, stream_pointer(stream)))

    def combine(self, tokens: Any, out: Any, *, topk_weights: Any = None, bias: Any = None, bias2: Any = None,
                scales: Any = None, out_topk_weights: Any = None, wait_ns: Any = None, backward: bool = False,
                send_only: bool = False, num_sms: int = 0, done_target: int = 0, stream: Any = None) -> None:
        """Brings the rows back and sums them per token. Sums repeat bit for bit. done_target: how often consumers count a
        tile in tile_done, of a send_only combine beside a pending dispatch of TILES; 0 = 1."""
        inputs, outputs, config = self._combine_in, self._combine_out, self._combine_config
        _held = (self._fill(inputs, _INPUTS, _COMBINE_IN, (tokens, scales, topk_weights, bias, bias2)),
                 self._fill(outputs, _OUTPUTS, _COMBINE_OUT, (out, out_topk_weights, wait_ns)))
        settings = send_only, backward, num_sms, done_target
        if settings != self._combine_settings:
            config.send_only, config.pass_, config.num_sms, config.done_target = settings
            self._combine_settings = settings
        check(lib.ucclEpCombine(self.pointer, inputs, outputs, config, stream_pointer(stream)))

    def complete(self, stream: Any = None) -> None:
        """The receive phase of a send_only operation; with none pending it does nothing."""
        check(lib.ucclEpComplete(self.pointer, stream_pointer(stream)))

    def complete_wave(self, wave: int, stream: Any = None) -> None:
        """Of a pending send_only dispatch the rows of the experts up to this wave; ascending."""
        check(lib.ucclEpCompleteWave(self.pointer, wave, stream_pointer(stream)))

    def wave_done(self, wave: int, stream: Any = None) -> None:
        """Of a pending send_only combine: the stream has made the rows of this wave; ascending, each once."""
        check(lib.ucclEpWaveDone(self.pointer, wave, stream_pointer(stream)))

    def by_waves(self, *, combines: bool = True, stream: Any = None) -> Iterator[range]:
        """Of a pending send_only dispatch wave by wave: yields the local experts whose rows are there when later work on the
        stream starts. combines: a send_only combine is pending, too, and what the body of the loop has enqueued makes the
        rows of these experts. After the last one both have ended. A loop that is left early leaves the rest to complete()."""
        local = self.group.num_local_experts
        for wave in range(self.waves):
            self.complete_wave(wave, stream)
            yield range(-(-wave * local // self.waves), -(-(wave + 1) * local // self.waves))
            if combines:
                self.wave_done(wave, stream)
        self.complete(stream)

    def tiles(self) -> abi.Tiles:
        """Of a handle of TILES, the addresses of its words in device memory (ucclEpTiles_t), for kernels. They stay."""
        tiles = abi.Tiles()
        check(lib.ucclEpHandleGetTiles(self.pointer, byref(tiles)))
        return tiles

    def _device_slots(self) -> Slots:
        return self._comm.device_slots

    def destroy(self) -> None:
        """Allowed with operations in flight, but not with kernels of yours that use its device_address."""
        check(lib.ucclEpHandleDestroy(self.pointer))
        self._forget()

    def __del__(self) -> None:
        if self.alive:
            self.group.dropped.append((self.pointer, self._device_address))

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.alive:
            self.destroy()
