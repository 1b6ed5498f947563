# SPDX-License-Identifier: Apache-2.0
"""What all buffers have in common: a communicator, and an end."""
from __future__ import annotations

import weakref
from typing import Any

import ucclep
from ucclep.lifetime import Unique, release, retire

from ..connect import connect
from ..groups import Groups
from ..high_throughput import HighThroughput
from ..streams import streams_of


class Life:
    """Held by a buffer, and by events and hooks of operations that programs have not received yet."""


class BufferBase(Unique):
    """Communication of one set of ranks. All of them make it, call its functions in the same order, and end it.

    A buffer that nobody holds any more, nor an event or a hook that waits to be called, is destroyed in the background, when the
    other ranks have dropped theirs, too.
    """

    def __init__(self, group: Any, comm: Any = None, timeout_ms: int = 0, explicitly_destroy: bool = False):
        self._comm = connect(group, comm, timeout_ms)
        self.group = group if group is not None else comm
        self.explicitly_destroy = explicitly_destroy
        self._streams = streams_of(self._comm)
        self._groups = Groups(self._comm, self._streams.capturing)
        self._normal = HighThroughput(self._comm, self._groups, self._streams)
        self._life = Life()
        self._streams.life = weakref.ref(self._life)
        # Both hold tensors of operations that may still run.
        self._when_dropped = weakref.finalize(self._life, release, self._comm, self._streams, self._groups)
        self._when_dropped.atexit = False  # communicators that are left at exit end together

    def destroy(self) -> None:
        """[collective] Frees everything, when operations have ended. Afterwards every method raises."""
        try:
            if self._comm.alive:
                self._streams.end()
        finally:
            self._comm.destroy()
            self._when_dropped.detach()
            retire(self)
            for holder in ("_groups", "_normal", "_low_latency"):  # of tensors
                self.__dict__.pop(holder, None)

    @property
    def num_data_errors(self) -> int:
        """Errors in data that the device has found, such as an expert id that is out of range.

        On a CPU the call that waits for the operation raises. On a GPU the first one is a RuntimeWarning of a later call.
        """
        return self._streams.errors.count

    def get_comm_stream(self) -> Any:
        """The torch stream on which operations run; on the host device a ucclep.Stream."""
        return self._streams.comm_stream

    def print_memory_usage(self) -> None:
        """Prints the bytes of this rank that other ranks write."""
        info = self._comm.info()
        print(f"rank {info['rank']} of {info['nranks']}: {info['window_bytes']} bytes of windows, "
              f"{len(self._groups.all())} shapes", flush=True)

    @property
    def _on_host(self) -> bool:
        return self._comm.device == ucclep.Device.HOST


def outside(name: str, what: str) -> Any:
    """A method for what libucclep does not cover."""
    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError(f"{name}: libucclep moves rows between tokens and experts; it has no {what}")
    refuse.__name__, refuse.__doc__ = name, "Not covered: raises NotImplementedError."
    return refuse
