# SPDX-License-Identifier: Apache-2.0
"""Tensors that stand for objects of Python: what a graph of torch's, or a saved tensor, hands on instead of them."""
from __future__ import annotations

import itertools
import struct
from typing import Any
from weakref import WeakValueDictionary

import torch

_numbers = itertools.count(1)
_alive: WeakValueDictionary[int, Any] = WeakValueDictionary()


class _Ticket(bytearray):
    """The memory of a ticket's tensor: it holds the object that the number in it stands for."""

    held: Any


def ticket_of(thing: Any) -> torch.Tensor:
    """A tensor that stands for `thing`, and keeps it alive as long as any tensor shares the memory."""
    number = next(_numbers)
    _alive[number] = thing
    ticket = _Ticket(struct.pack("=q", number))
    ticket.held = thing
    return torch.frombuffer(ticket, dtype=torch.int64)


def holder_of(ticket: torch.Tensor) -> Any:
    """What a ticket stands for. A copy of the ticket is good only as long as the ticket itself."""
    number = int(ticket)
    if number not in _alive:
        raise ValueError(f"the tensor with the number {number} refers to no living object: it is a copy whose original was "
                         "released, or it was not made here; keep the original tensor")
    return _alive[number]
