# SPDX-License-Identifier: Apache-2.0
"""Groups of libucclep, made at the first call of a shape, and the handles on them, which are used again."""
from __future__ import annotations

from typing import Any, Callable

import ucclep
from ucclep.pool import HandlePool, Lease

#: Shapes that have a group at a time: of more, that which was used longest ago is destroyed.
SHAPES = 8


class Groups:
    """Every rank makes the same calls in the same order, so all of them destroy the same group at the same call."""

    def __init__(self, comm: ucclep.Communicator, capturing: Callable[[], bool]):
        self.comm = comm
        self._capturing = capturing
        self._groups: dict = {}  # by shape, in the order of their last use
        self._in_graphs: set = set()  # their groups live as long as the communicator, for a graph may run at any time
        self._handles = HandlePool()
        #: Called with a group before that is destroyed.
        self.before_destroy: list[Callable[[ucclep.Group], None]] = []

    def get(self, call: str, **shape: int) -> ucclep.Group:
        """[collective, when the shape has no group] `call` names the caller's function."""
        key = tuple(sorted(shape.items()))
        group = self._groups.pop(key, None)
        if group is None:
            if self._capturing():
                raise RuntimeError(f"{call} cannot allocate for a new shape while a graph is being captured: call {call} once "
                                   f"with the same shapes before the capture ({shape})")
            self._make_room()
            group = ucclep.Group(self.comm, **shape)
        self._groups[key] = group
        if self._capturing():
            self._in_graphs.add(key)
        return group

    def _make_room(self) -> None:
        others = [key for key in self._groups if key not in self._in_graphs]
        for key in others[:max(0, len(others) - SHAPES + 1)]:
            group = self._groups.pop(key)
            self._handles.forget(group)
            for call in self.before_destroy:
                call(group)
            group.destroy()

    def lease(self, call: str, group: ucclep.Group, layout: ucclep.Layout, mode: ucclep.Mode, **settings: int) -> Lease:
        """A handle that nobody uses, or a new one."""
        if self._capturing() and not self._handles.has(group, layout, mode, **settings):
            raise RuntimeError(f"{call} cannot allocate a routing while a graph is being captured: before the capture, call "
                               f"{call} as often as in the graph, and keep the results")
        return self._handles.lease(group, layout, mode, **settings)

    def with_experts(self, num_experts: int) -> ucclep.Group | None:
        """A group of this many experts, if there is one: for what is local, and the same for all of them."""
        return next((group for group in self._groups.values() if group.num_experts == num_experts), None)

    def all(self) -> list[Any]:
        return list(self._groups.values())
