# SPDX-License-Identifier: Apache-2.0
"""Streams and events: those of a framework, or the communicator's own."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .library import check, lib
from .lifetime import LibraryObject
from .waiting import wait

if TYPE_CHECKING:  # for annotations only: at run time nothing is imported back
    from .communicator import Communicator


def stream_pointer(stream: Any) -> int | None:
    """The address of a stream: an integer, None (the default stream), a torch, CuPy or Numba stream, or a Stream."""
    if stream is None or type(stream) is int:
        return stream
    for name in ("pointer", "cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            return _address(value)
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return (protocol() if callable(protocol) else protocol)[1]
    raise TypeError(f"{type(stream).__name__} is not a stream: expected an integer, None or a framework's stream")


def event_pointer(event: Any) -> int:
    """The address of an event: an integer, a torch or CuPy event, or an Event."""
    if type(event) is int:
        return event
    for name in ("pointer", "cuda_event", "ptr", "handle"):
        value = getattr(event, name, None)
        if value is not None:
            return _address(value)
    raise TypeError(f"{type(event).__name__} is not an event: expected an integer or a framework's event")


def _address(value: Any) -> int:
    return value if isinstance(value, int) else value.value


class Stream(LibraryObject):
    """A stream of the communicator's device. Frameworks on a GPU pass their own instead."""

    def __init__(self, comm: Communicator):
        self._comm = comm
        pointer = ctypes.c_void_p()
        check(lib.ucclEpStreamCreate(comm.pointer, ctypes.byref(pointer)))
        self._set_pointer(pointer.value, comm)

    def synchronize(self) -> None:
        """Waits until all work on the stream has ended."""
        wait(lib.ucclEpStreamSynchronize, self._comm.pointer, self.pointer, stop=self._comm.abort)

    def wait_event(self, event: Any) -> None:
        """Later work on the stream waits for the event."""
        check(lib.ucclEpStreamWaitEvent(self._comm.pointer, self.pointer, event_pointer(event)))

    def destroy(self) -> None:
        """Work in flight still ends."""
        check(lib.ucclEpStreamDestroy(self._comm.pointer, self.pointer))
        self._forget()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.alive:
            self.destroy()


class Event(LibraryObject):
    """A point in a stream's work, which can be timed."""

    def __init__(self, comm: Communicator):
        self._comm = comm
        pointer = ctypes.c_void_p()
        check(lib.ucclEpEventCreate(comm.pointer, ctypes.byref(pointer)))
        self._set_pointer(pointer.value, comm)

    def record(self, stream: Any = None) -> None:
        """The event happens when all earlier work on the stream has ended."""
        check(lib.ucclEpEventRecord(self._comm.pointer, self.pointer, stream_pointer(stream)))

    def synchronize(self) -> None:
        """Waits until the event has happened."""
        wait(lib.ucclEpEventSynchronize, self._comm.pointer, self.pointer, stop=self._comm.abort)

    def elapsed_ms(self, later: Event) -> float:
        """The milliseconds from this event to `later`, which have both happened."""
        ms = ctypes.c_float()
        check(lib.ucclEpEventElapsed(self._comm.pointer, self.pointer, later.pointer, ctypes.byref(ms)))
        return ms.value

    def destroy(self) -> None:
        check(lib.ucclEpEventDestroy(self._comm.pointer, self.pointer))
        self._forget()

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.alive:
            self.destroy()
