# SPDX-License-Identifier: Apache-2.0
"""Handles that are used again: making one allocates."""
from __future__ import annotations

from typing import Any

from .enums import Layout, Mode
from .group import Group
from .handle import Handle
from .lifetime import Unique


class Lease(Unique):
    """A handle that somebody uses; it goes back to its pool when nobody holds the lease any more."""

    def __init__(self, handle: Handle, pool: list):
        self.handle = handle
        self._pool = pool

    def keep(self) -> None:
        """The handle never goes back: a captured graph uses it."""
        self._pool = []

    def __del__(self) -> None:
        self._pool.append(self.handle)


class HandlePool(Unique):
    """Handles of any groups and settings."""

    def __init__(self) -> None:
        self._free: dict = {}

    def lease(self, group: Group, layout: Layout, mode: Mode, **settings: Any) -> Lease:
        """One that nobody uses, or a new one."""
        pool = self._pool(group, layout, mode, settings)
        return Lease(pool.pop() if pool else group.handle(layout, mode, **settings), pool)

    def has(self, group: Group, layout: Layout, mode: Mode, **settings: Any) -> bool:
        """Whether lease() would allocate nothing."""
        return bool(self._pool(group, layout, mode, settings))

    def forget(self, group: Group) -> None:
        """The group's handles end with it."""
        for key in [key for key in self._free if key[0] is group]:
            del self._free[key]

    def _pool(self, group: Group, layout: Layout, mode: Mode, settings: dict) -> list:
        return self._free.setdefault((group, layout, mode, *sorted(settings.items())), [])
