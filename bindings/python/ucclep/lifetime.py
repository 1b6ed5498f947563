# SPDX-License-Identifier: Apache-2.0
"""How long objects of the library last in Python, and how communicators that nobody destroyed end with the interpreter.

Destroying is collective, so it cannot follow from garbage collection, which runs at different times on each rank. What
is left at exit is destroyed then, and the ranks wait for each other. A process that ends by an exception, or with an exit
status other than 0, gives up instead: its peers hear of it at once. A forked child ends nothing of its parent's.
"""
from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import sys
import time
from contextlib import suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any, Callable, Iterable
from weakref import WeakSet

from .errors import InvalidArgument
from .library import lib
from .waiting import wait

if TYPE_CHECKING:  # for annotations only: at run time nothing is imported back
    from .communicator import Communicator


class Unique:
    """Stands for something that there is once in this process, and so is neither copied nor pickled."""

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: it refers to an object of this process")


class LibraryObject(Unique):
    """Has the `pointer` of an object of the library until that, or what it was made from, is destroyed."""

    pointer: int | None
    _parts: Iterable[LibraryObject] = ()

    def _set_pointer(self, pointer: int | None, made_from: LibraryObject | None = None) -> None:
        self.pointer = pointer
        if made_from is not None:
            if made_from._parts is LibraryObject._parts:
                made_from._parts = WeakSet()
            made_from._parts.add(self)

    def _forget(self) -> None:
        """It is destroyed, and so is all that was made from it."""
        self.__dict__.pop("pointer", None)
        for part in list(self._parts):
            part._forget()

    def _end_by(self, function: Callable[..., int], *arguments: Any, stop: Callable[[], None]) -> None:
        """A call that destroys it: also one that goes on to its end after a signal has interrupted the wait for it."""
        def end() -> int:
            result = function(*arguments)
            if result == 0:
                self._forget()
            return result
        wait(end, stop=stop)

    @property
    def alive(self) -> bool:
        """Whether neither it nor what it was made from was destroyed."""
        return "pointer" in self.__dict__

    def __getattr__(self, name: str) -> Any:
        if name == "pointer":
            raise InvalidArgument(4, f"the {type(self).__name__} does not exist any more: it, or what it was made from, was "
                                     "destroyed")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def retire(thing: Any) -> None:
    """Every public method of it raises from here on."""
    name = type(thing).__name__

    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidArgument(4, f"the {name} does not exist any more: it was destroyed")

    for kind in type(thing).__mro__:
        for method, value in vars(kind).items():
            if isinstance(value, FunctionType) and not method.startswith("_"):
                setattr(thing, method, refuse)


def release(comm: Communicator, *kept: Any) -> None:
    """Destroys a communicator whose owner is gone, in the background: this waits for the other ranks to do so too.

    `kept` lives until then. What cannot be released now ends with the process.
    """
    if not comm.alive:
        return
    pointer = comm.pointer

    def destroy(_until: tuple) -> None:
        lib.ucclEpCommDestroy(pointer)

    with suppress(RuntimeError):  # there is no thread any more, as at the end of the interpreter
        _thread.start_new_thread(destroy, (kept,))  # not by threading, whose locks a collection of garbage may interrupt
        comm._forget()


_live: dict[Communicator, None] = {}  # in the order in which they were made
os.register_at_fork(after_in_child=_live.clear)


def add(comm: Communicator) -> None:
    _live[comm] = None


def discard(comm: Communicator) -> None:
    _live.pop(comm, None)


def _failed() -> bool:
    return getattr(sys, "last_exc", None) is not None or getattr(sys, "last_type", None) is not None


#: So long the interpreter stays whole for operations that are still in flight. The process itself waits until all
#: communicators are destroyed, unless its exit status is not 0 (src/host/api/process_end.cpp).
_PATIENCE_S = 2.0


def _destroy(comms: list[Communicator]) -> None:
    """All at once, for ranks of one process wait for each other; in threads of C, since Python starts none at its end."""
    system = ctypes.CDLL(None)
    begin = ctypes.cast(lib.ucclEpCommDestroy, ctypes.c_void_p)
    threads = []
    for comm in comms:
        thread = ctypes.c_ulong()
        if system.pthread_create(ctypes.byref(thread), None, begin, ctypes.c_void_p(comm.pointer)) == 0:
            threads.append(thread)
    deadline = time.monotonic() + _PATIENCE_S
    while threads and time.monotonic() < deadline:
        threads = [thread for thread in threads if system.pthread_tryjoin_np(thread, None) != 0]
        time.sleep(0.001)


@atexit.register
def _end() -> None:
    left = list(_live)
    if _failed():
        for comm in left:
            comm.abort()
    _destroy(left)
