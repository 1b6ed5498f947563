# SPDX-License-Identifier: Apache-2.0
"""How ranks find each other: rank 0's unique id reaches the others by what a program has already."""
from __future__ import annotations

import ctypes
import itertools
import os
from typing import Any, NamedTuple

from . import abi
from .errors import Error, error
from .library import check, lib


def unique_id() -> bytes:
    """Opens a rendezvous in this process, which must live until all ranks have joined."""
    id_ = abi.UniqueId()
    check(lib.ucclEpGetUniqueId(ctypes.byref(id_)))
    return bytes(id_)


class Place(NamedTuple):
    nranks: int
    rank: int
    id: bytes


def _unique_id_or_reason() -> Any:
    # Others wait for what rank 0 sends, so they hear of its failure too.
    try:
        return unique_id()
    except Error as reason:
        return reason.code, reason.message


def _received(message: Any) -> bytes:
    if isinstance(message, bytes):
        return message
    raise error(*message)


def by_mpi(comm: Any) -> Place:
    rank = comm.Get_rank()
    return Place(comm.Get_size(), rank, _received(comm.bcast(_unique_id_or_reason() if rank == 0 else None, root=0)))


def by_torch_group(group: Any) -> Place:
    import torch.distributed as dist
    rank, nranks = dist.get_rank(group), dist.get_world_size(group)
    messages = [None] * nranks
    dist.all_gather_object(messages, _unique_id_or_reason() if rank == 0 else None, group=group)
    return Place(nranks, rank, _received(messages[0]))


def by_store(store: Any, nranks: int, rank: int, name: str) -> Place:
    """`store` has set and get, as torch.distributed.Store; `name` is the communicator's, new for each."""
    key = f"ucclep/{name}"
    if rank == 0:
        message = _unique_id_or_reason()
        store.set(key, message.hex() if isinstance(message, bytes) else f"error {message[0]} {message[1]}")
    text = store.get(key)
    text = text.decode() if isinstance(text, bytes) else text
    if text.startswith("error "):
        _, code, why = text.split(" ", 2)
        raise error(int(code), why)
    return Place(nranks, rank, bytes.fromhex(text))


_store: Any = None
_calls = itertools.count()  # all ranks make their communicators in the same order, so the n-th has the same key


def by_env() -> Place:
    """What torch.distributed.run sets: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT."""
    global _store
    try:
        rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except KeyError as missing:
        raise RuntimeError(f"{missing.args[0]} is not set: start the program by python -m torch.distributed.run, or "
                           "make the communicator from a unique id") from None
    if _store is None:
        from torch.distributed import TCPStore
        agent_has_it = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        _store = TCPStore(address, port, nranks, not agent_has_it and rank == 0)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return by_store(_store, nranks, rank, f"env/{attempt}/{next(_calls)}")
