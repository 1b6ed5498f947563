# SPDX-License-Identifier: Apache-2.0
"""On which stream operations run, and how they are ordered with the caller's work: on a GPU, and on the host device."""
from __future__ import annotations

from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Callable, Iterator

import torch
import ucclep

from .data_errors import DataErrors
from .events import EventHandle, EventOverlap


def handle_of(event: EventOverlap | EventHandle | None) -> EventHandle | None:
    """Programs give either."""
    return event.event if isinstance(event, EventOverlap) else event


def nobody() -> None:
    """Before there is a buffer."""


class GpuStreams:
    """Operations run on a stream of their own. A caller that does not want to wait later has its stream wait for it."""

    life: Callable[[], Any] = staticmethod(nobody)

    def __init__(self, comm: ucclep.Communicator):
        self.comm_stream = torch.cuda.Stream()
        self._allocated_on_comm_stream = False
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.errors = DataErrors(comm)

    @staticmethod
    def capturing() -> bool:
        return torch.cuda.is_current_stream_capturing()

    @contextmanager
    def operation(self, previous_event: Any, allocate_on_comm_stream: bool, also: Any = None) -> Iterator[int]:
        self.errors.warn_once()
        self._allocated_on_comm_stream = allocate_on_comm_stream
        compute = torch.cuda.current_stream()
        event, later = handle_of(previous_event), handle_of(also)
        if event is not None:
            self.comm_stream.wait_event(event.event)
        if event is None or not allocate_on_comm_stream:
            self.comm_stream.wait_stream(compute)  # whose work may still use memory that is allocated now
        if later is not None:
            self.comm_stream.wait_event(later.event)
        if allocate_on_comm_stream:
            with torch.cuda.stream(self.comm_stream):
                yield self.comm_stream.cuda_stream
        else:
            yield self.comm_stream.cuda_stream

    def finished(self, asynchronous: bool, tensors: tuple, finish: Callable[[], None] | None = None) -> EventOverlap:
        compute = torch.cuda.current_stream()
        if finish is not None:
            with torch.cuda.stream(self.comm_stream):
                finish()
        if not asynchronous:
            compute.wait_stream(self.comm_stream)
            if not self._allocated_on_comm_stream:
                return EventOverlap()  # whatever frees a tensor comes after the operation
        for tensor in tensors:
            if tensor is not None:
                tensor.record_stream(self.comm_stream)
                tensor.record_stream(compute)
        if not asynchronous:
            return EventOverlap()
        event = torch.cuda.Event()
        event.record(self.comm_stream)
        return EventOverlap(EventHandle(event), tensors)

    def on_comm_stream(self) -> Any:
        """For kernels of torch's that are ordered with operations. What they make belongs to the stream of operations."""
        self._allocated_on_comm_stream = True
        return torch.cuda.stream(self.comm_stream)

    def here(self) -> int:
        """The stream of a call whose receive phase the caller starts."""
        return torch.cuda.current_stream().cuda_stream

    def begin_here(self) -> int:
        """The same, for the first of its phases."""
        self.errors.warn_once()
        return self.here()

    def finished_here(self, finish: Callable[[], None] | None) -> None:
        if finish is not None:
            finish()

    def end(self) -> None:
        """Warns of what the last operations have found."""
        with suppress(RuntimeError):  # of a GPU that has failed: the communicator still has to end
            for stream in (self.comm_stream, torch.cuda.current_stream()):
                stream.synchronize()
            self.errors.warn_once()


class HostEvent:
    """The end of an operation of the host device. It keeps the operation's tensors, and `finish` is called when it comes."""

    def __init__(self, streams: HostStreams, native: Any, tensors: tuple, finish: Callable[[], None] | None):
        self._streams = streams
        self.native = native
        self.tensors = tensors
        self.finish = finish

    def synchronize(self) -> None:
        self._streams.wait_for(self)


class HostStreams:
    """Work of a CPU tensor has ended when its call returns, so only our own operations are asynchronous.

    Operations whose end nobody has waited for are kept, with their tensors, whatever the caller drops. Waiting for one is
    waiting for all before it.
    """

    device = torch.device("cpu")
    life: Callable[[], Any] = staticmethod(nobody)
    MOST_KEPT = 16

    def __init__(self, comm: ucclep.Communicator):
        self.comm_stream = comm.stream()
        self._comm = comm
        self.errors = DataErrors(comm)
        self._running: deque[HostEvent] = deque()
        self._free_events: list = []

    @staticmethod
    def capturing() -> bool:
        return False

    @contextmanager
    def operation(self, previous_event: Any, allocate_on_comm_stream: bool, also: Any = None) -> Iterator[Any]:
        for event in filter(None, map(handle_of, (previous_event, also))):
            event.current_stream_wait()
        yield self.comm_stream

    def finished(self, asynchronous: bool, tensors: tuple, finish: Callable[[], None] | None = None) -> EventOverlap:
        native = self._free_events.pop() if self._free_events else self._comm.event()
        native.record(self.comm_stream)
        event = HostEvent(self, native, tensors, finish)
        self._running.append(event)
        if not asynchronous:
            self.wait_for(event)
            return EventOverlap()
        if len(self._running) > self.MOST_KEPT:
            self.wait_for(self._running[0])
        return EventOverlap(EventHandle(event, self.life()), tensors)

    def wait_for(self, event: HostEvent) -> None:
        if event in self._running:
            self._end_up_to(event)
            self.errors.raise_found()

    def end(self) -> None:
        """Ends all that runs, so that events can be waited for when the communicator is gone."""
        with suppress(ucclep.Error):  # those that have failed raise when they are waited for
            if self._running:
                self._end_up_to(self._running[-1])
            self.errors.warn_once()

    def _end_up_to(self, event: HostEvent) -> None:
        event.native.synchronize()
        ended = None
        while ended is not event:
            ended = self._running.popleft()
            if ended.finish is not None:
                ended.finish()
            self._free_events.append(ended.native)
            ended.tensors = ()

    def on_comm_stream(self) -> Any:
        return nullcontext()

    def here(self) -> Any:
        return self.comm_stream

    begin_here = here

    def finished_here(self, finish: Callable[[], None] | None) -> None:
        self.finished(False, (), finish)


def streams_of(comm: ucclep.Communicator) -> GpuStreams | HostStreams:
    return HostStreams(comm) if comm.device == ucclep.Device.HOST else GpuStreams(comm)
