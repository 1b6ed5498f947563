# SPDX-License-Identifier: Apache-2.0
"""EventHandle and EventOverlap. A CPU has no current stream: there, waiting for an event is waiting in the thread."""
from __future__ import annotations

from typing import Any, Callable

import torch
from ucclep.lifetime import Unique


class EventHandle:
    """A point in a stream's work: of the current stream, where none is given."""

    def __init__(self, event: Any = None):
        if event is None and torch.cuda.is_available():
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream())
        self.event = event

    def current_stream_wait(self) -> None:
        """Later work of the current stream (on a CPU: of this thread) waits for the event."""
        if isinstance(self.event, torch.cuda.Event):
            torch.cuda.current_stream().wait_event(self.event)
        elif self.event is not None:
            self.event.synchronize()


class HostEvent(Unique):
    """An event of the host device. It keeps the operation's tensors, and has the last word when it has happened."""

    def __init__(self, native: Any, pool: list, tensors: tuple, finish: Callable[[], None] | None):
        self.native = native
        self._pool = pool
        self._tensors = tensors
        self._finish = finish

    def synchronize(self) -> None:
        self.native.synchronize()
        finish, self._finish, self._tensors = self._finish, None, ()
        if finish is not None:
            finish()

    def __del__(self) -> None:
        self._pool.append(self.native)


class EventOverlap:
    """An event, and tensors that live until it has happened. `with` waits for it at the end of the block."""

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple | None = None):
        self.event = event
        self.extra_tensors = extra_tensors

    def current_stream_wait(self) -> None:
        if self.event is None:
            raise RuntimeError("there is no event to wait for: the call was made without async_finish")
        self.event.current_stream_wait()

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.event is not None:
            self.event.current_stream_wait()
