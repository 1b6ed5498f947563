# SPDX-License-Identifier: Apache-2.0
"""How communicators that nobody destroyed end with the interpreter.

Destroying is collective, so it cannot follow from garbage collection, which runs at different times on each rank. What
is left at exit is destroyed then. The ranks wait for each other, unless this process ends by an exception, or holds
several ranks, whose threads are gone: then it gives up, and its peers hear of it at once.
"""
from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for annotations only: at run time nothing is imported back
    from .communicator import Communicator

_live: set[Communicator] = set()
add = _live.add
discard = _live.discard


def _failed() -> bool:
    return getattr(sys, "last_exc", None) is not None or getattr(sys, "last_type", None) is not None


@atexit.register
def _end() -> None:
    left = list(_live)
    if len(left) > 1 or _failed():
        for comm in left:
            comm.abort()
    for comm in left:
        comm.destroy()
