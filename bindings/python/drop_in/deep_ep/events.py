# SPDX-License-Identifier: Apache-2.0
"""EventHandle and EventOverlap. A CPU has no current stream: there, waiting for an event is waiting in the thread."""
from __future__ import annotations

from typing import Any, Callable

import torch


class EventHandle:
    """A point in a stream's work: of the current stream, where none is given."""

    def __init__(self, event: Any = None, keeps: Any = None):
        self._keeps = keeps  # what the event needs until it has happened, and the caller may drop before
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
            self._keeps = None


class EventOverlap:
    """An event, and tensors that live until it has happened. `with` waits for it at the end of the block."""

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple | None = None):
        self.event = event
        self.extra_tensors = extra_tensors
        self.hook_after_wait: Callable[[], Any] | None = None
        self._release = False

    def current_stream_wait(self, release_handle: bool = False) -> Any:
        """Waits, and calls the hook that was registered, if there is one: its result is returned.

        With `release_handle` the event and the tensors that it keeps are dropped.
        """
        if self.event is None:
            raise RuntimeError("the event cannot be waited for: the call was made without async_finish, or the event was "
                               "released")
        self.event.current_stream_wait()
        hook, self.hook_after_wait = self.hook_after_wait, None
        result = None if hook is None else hook()
        if release_handle:
            self.event = self.extra_tensors = None
        return result

    def wait(self) -> Any:
        """current_stream_wait()."""
        return self.current_stream_wait()

    def register_hook_after_wait(self, hook_after_wait: Callable[[], Any]) -> None:
        """The next current_stream_wait() calls it, once."""
        if self.hook_after_wait is not None:
            raise RuntimeError("a hook is registered already: current_stream_wait() calls it, then another can be registered")
        self.hook_after_wait = hook_after_wait

    def __call__(self, release_handle: bool = False) -> EventOverlap:
        """Itself, for a `with` block that drops the event at its end: `with event(release_handle=True)`."""
        self._release = release_handle
        return self

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: Any) -> None:
        release, self._release = self._release, False
        if self.event is not None:
            self.current_stream_wait(release)
