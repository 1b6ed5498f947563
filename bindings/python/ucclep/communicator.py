# SPDX-License-Identifier: Apache-2.0
"""Communicator: R ranks that can reach each other."""
from __future__ import annotations

import ctypes
import json
import os
from contextlib import suppress
from typing import Any, Callable, Sequence

from . import abi, lifetime, rendezvous
from .device_object import Slots
from .enums import Device
from .errors import InvalidUsage, error
from .graph import Graph
from .library import check, lib, text_of
from .memory import Memory, Window
from .stream import Event, Stream, stream_pointer
from .tensor import DEVICE, HOST, PLACE, WRITABLE, Facts, TensorView, is_pinned, tensor
from .waiting import wait

# Libraries that know which device a thread uses, and their function for it.
_DRIVERS = (("libcuda.so.1", "cuCtxGetDevice"), ("libamdhip64.so.6", "hipGetDevice"))


def _current_device() -> int | None:
    """The device that this thread uses, if a driver that the process has opened knows one."""
    for name, function in _DRIVERS:
        try:
            driver = ctypes.CDLL(name, os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        index = ctypes.c_int()
        if driver[function](ctypes.byref(index)) == 0:
            return index.value
    return None


def _config(device: Device | str | None = None, device_index: int | None = None, transport: str | None = None,
            nics: str | None = None, **numbers: int) -> abi.CommConfig:
    config = abi.CommConfig(**numbers)
    if device is not None:
        config.device = Device[device.upper()] if isinstance(device, str) else device
    if device_index is not None:
        config.device_index = device_index
    config.transport = transport.encode() if transport else None
    config.nics = nics.encode() if nics else None
    return config


class Communicator(lifetime.LibraryObject):
    """Ranks that can reach each other. Made by every rank, and destroyed by every living one.

    Settings: `device` ("cuda", "hip", "host"; None chooses), `device_index` (None: the current one), `transport`,
    `nics`, `ranks_per_node`, `ranks_per_domain`, `proxy_threads`, `timeout_ms`.

    One thread at a time uses a communicator and what was made from it; abort(), async_error() and stats() are for any.
    Ranks may be threads of one process.
    """

    def __init__(self, nranks: int, rank: int, unique_id: bytes, **settings: Any):
        if settings.get("device_index") is None:  # another thread makes the call, whose own device is not meant
            settings["device_index"] = _current_device()
        config = _config(**settings)
        pointer = ctypes.c_void_p()
        id_ = abi.UniqueId.from_buffer_copy(unique_id)

        def undo() -> None:
            lib.ucclEpCommAbort(pointer)
            lib.ucclEpCommDestroy(pointer)

        wait(lib.ucclEpCommInitRank, ctypes.byref(pointer), nranks, id_, rank, ctypes.byref(config), undo=undo)
        self._adopt(pointer.value)

    def _adopt(self, pointer: int) -> None:
        self._set_pointer(pointer)
        info = self.info()
        self.rank, self.nranks, self.device = info["rank"], info["nranks"], Device(info["device"])
        self.foreign = HOST if self.device != Device.HOST else DEVICE
        self.device_slots = Slots(self)
        lifetime.add(self)

    @classmethod
    def from_env(cls, **settings: Any) -> Communicator:
        """From the environment that python -m torch.distributed.run makes."""
        return cls(*rendezvous.by_env(), **settings)

    @classmethod
    def from_mpi(cls, comm: Any, **settings: Any) -> Communicator:
        """From a communicator of mpi4py."""
        return cls(*rendezvous.by_mpi(comm), **settings)

    @classmethod
    def from_torch(cls, group: Any = None, **settings: Any) -> Communicator:
        """From a process group of torch.distributed; None is the default group."""
        return cls(*rendezvous.by_torch_group(group), **settings)

    @classmethod
    def from_store(cls, store: Any, nranks: int, rank: int, name: str = "0", **settings: Any) -> Communicator:
        """From a store of torch.distributed, or anything with set and get. Each communicator needs a `name` of its own."""
        return cls(*rendezvous.by_store(store, nranks, rank, name), **settings)

    @classmethod
    def from_bootstrap(cls, nranks: int, rank: int, allgather: Callable[[bytes], Sequence[bytes]],
                       **settings: Any) -> Communicator:
        """From an allgather: it takes this rank's bytes and returns those of all ranks, in order."""
        config = _config(**settings)
        failure: list[BaseException] = []

        def call(_ctx: Any, buffer: int, nbytes: int) -> int:
            try:
                parts = allgather(ctypes.string_at(buffer + rank * nbytes, nbytes))
                if len(parts) != nranks or any(len(part) != nbytes for part in parts):
                    raise ValueError(f"allgather must return {nranks} parts of {nbytes} bytes")
                ctypes.memmove(buffer, b"".join(parts), nranks * nbytes)
                return 0
            except BaseException as reason:  # nothing may pass through C
                failure.append(reason)
                return 1

        bootstrap = abi.Bootstrap(allgather=abi.Allgather(call))
        pointer = ctypes.c_void_p()
        code = lib.ucclEpCommInitBootstrap(ctypes.byref(pointer), nranks, rank, ctypes.byref(bootstrap),
                                           ctypes.byref(config))
        if failure and code:
            if not isinstance(failure[0], Exception):  # Ctrl-C
                raise failure[0]
            raise error(code, lib.ucclEpGetLastError(None).decode()) from failure[0]
        check(code)
        comm = cls.__new__(cls)
        comm._adopt(pointer.value)
        return comm

    def info(self) -> dict:
        """What the communicator runs on: ucclEpCommInfo_t by field."""
        info = abi.CommInfo()
        check(lib.ucclEpCommGetInfo(self.pointer, ctypes.byref(info)))
        return fields(info)

    def topology(self) -> dict:
        """Machines, nodes, domains, and the NICs and proxies of all ranks."""
        return json.loads(text_of(lib.ucclEpCommGetTopology, self.pointer))

    def stats(self) -> dict:
        """Sums over this rank's proxy threads."""
        stats = abi.Stats()
        check(lib.ucclEpCommGetStats(self.pointer, ctypes.byref(stats)))
        return fields(stats)

    def async_error(self) -> dict | None:
        """The first error that the communicator met while operations ran, or None."""
        record = abi.AsyncError()
        check(lib.ucclEpCommGetAsyncError(self.pointer, ctypes.byref(record)))
        return fields(record) if record.code else None

    def check_async_error(self) -> None:
        """Raises the recorded error, if there is one."""
        record = self.async_error()
        if record:
            raise error(record["code"], record["text"])

    def clear_async_error(self) -> None:
        """Forgets a data record (Overflow, an id out of range, a masked peer)."""
        check(lib.ucclEpCommClearAsyncError(self.pointer))

    def alloc(self, nbytes: int, host: bool = False) -> Memory:
        """Memory of the device, which can be registered; with `host` of the host, which the device can access."""
        return Memory(self, nbytes, host)

    def copy(self, dst: Any, src: Any, nbytes: int, stream: Any = None) -> None:
        """Copies between any two kinds of memory, in the order of the stream. `dst` and `src` are addresses."""
        check(lib.ucclEpMemcpy(self.pointer, dst, src, nbytes, stream_pointer(stream)))

    def register(self, memory: Any, nbytes: int | None = None) -> Window:
        """[collective] Registers a tensor or a Memory, or `nbytes` from an address."""
        if isinstance(memory, int):
            return Window(self, memory, nbytes)
        if isinstance(memory, Memory):
            return Window(self, memory.pointer, nbytes or memory.nbytes, memory)
        view = tensor(memory)
        return Window(self, view.struct.data, nbytes or view.contiguous_bytes(), view)

    def stream(self) -> Stream:
        """A stream of the communicator's device."""
        return Stream(self)

    def event(self) -> Event:
        """An event that can be timed."""
        return Event(self)

    def graph(self, stream: Any) -> Graph:
        """Captures the operations of a `with` block on the stream; host device only."""
        return Graph(self, stream)

    def synchronize(self, stream: Any = None) -> None:
        """Waits until all work on the stream has ended; raises what was recorded if it failed."""
        wait(lib.ucclEpStreamSynchronize, self.pointer, stream_pointer(stream), stop=self.abort)

    def check(self, facts: Facts, name: str, output: bool) -> None:
        """Refuses memory that this communicator's device cannot access, or not write."""
        if facts[PLACE] == self.foreign and not is_pinned(facts):
            where = "the host" if self.foreign == HOST else "a GPU"
            raise ValueError(f"{name} is in memory of {where}, but the communicator's device is {self.device.name}")
        if output and not facts[WRITABLE]:
            raise ValueError(f"{name} is read-only, but the library writes to it: pass a writable tensor")

    def view(self, array: Any, name: str, output: bool = False) -> TensorView:
        """`array` as the library sees it, if it may be that."""
        view = tensor(array)
        self.check(view.facts, name, output)
        return view

    def abort(self) -> None:
        """From any thread: kernels, proxies and waiting calls leave within a second."""
        if self.alive:
            check(lib.ucclEpCommAbort(self.pointer))

    def destroy(self) -> None:
        """[collective] Destroys all that was made from it too."""
        pointer = self.pointer
        self._end_by(lib.ucclEpCommDestroy, pointer, stop=lambda: lib.ucclEpCommAbort(pointer))

    def _forget(self) -> None:
        lifetime.discard(self)
        super()._forget()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if not self.alive:
            return
        if kind is not None:
            with suppress(InvalidUsage):  # a forked child gives up nothing of its parent's
                self.abort()  # the peers need not wait for a rank that failed
        self.destroy()


def fields(record: abi.Struct) -> dict:
    """A struct as a dict, without size and magic."""
    values = {name: getattr(record, name) for name, _ in type(record)._fields_}
    return {name: value.decode(errors="replace") if isinstance(value, bytes) else value
            for name, value in values.items()}
