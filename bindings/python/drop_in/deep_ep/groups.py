# SPDX-License-Identifier: Apache-2.0
"""Groups of libucclep, made at the first call of a shape, and the handles on them, which are used again."""
from __future__ import annotations

from typing import Any, Callable

import ucclep
from ucclep.pool import HandlePool, Lease


class Groups:
    def __init__(self, comm: ucclep.Communicator, capturing: Callable[[], bool]):
        self.comm = comm
        self._capturing = capturing
        self._groups: dict = {}
        self._handles = HandlePool()

    def get(self, call: str, **shape: int) -> ucclep.Group:
        """[collective, at the first call of a shape] `call` names the caller's function."""
        key = tuple(sorted(shape.items()))
        if key not in self._groups:
            if self._capturing():
                raise RuntimeError(f"{call} meets this shape for the first time while a graph is being captured, and has "
                                   f"to allocate: call {call} once with the same shapes before the capture ({shape})")
            self._groups[key] = ucclep.Group(self.comm, **shape)
        return self._groups[key]

    def lease(self, call: str, group: ucclep.Group, layout: ucclep.Layout, mode: ucclep.Mode, **settings: int) -> Lease:
        """A handle that nobody uses, or a new one."""
        if self._capturing() and not self._handles.has(group, layout, mode, **settings):
            raise RuntimeError(f"{call} needs one routing more than were alive before the capture of a graph began: call "
                               f"{call} that often before it, and keep the results")
        return self._handles.lease(group, layout, mode, **settings)

    def all(self) -> list[Any]:
        return list(self._groups.values())
