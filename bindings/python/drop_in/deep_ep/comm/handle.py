# SPDX-License-Identifier: Apache-2.0
"""How ranks lie, and the communicators of NCCL that there are not."""
from __future__ import annotations

from typing import Any


def get_physical_domain_size(group_or_buffer: Any) -> tuple:
    """(domains, ranks of a domain): inside of one, ranks reach each other's memory. Of a process group [collective]."""
    if hasattr(group_or_buffer, "get_physical_domain_size"):
        return group_or_buffer.get_physical_domain_size()
    from ..connect import connect
    with connect(group_or_buffer, None) as comm:
        return comm.nranks // comm.info()["domain_size"], comm.info()["domain_size"]


def get_logical_domain_size(group_or_buffer: Any, allow_hybrid_mode: bool | None = None) -> tuple:
    """(1, ranks): counts are by rank."""
    if hasattr(group_or_buffer, "get_logical_domain_size"):
        return group_or_buffer.get_logical_domain_size()
    return 1, group_or_buffer.size()


class NCCLCommHandle:
    """libucclep has no communicator of NCCL: raises NotImplementedError."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("NCCLCommHandle: libucclep uses no NCCL; pass the process group itself to buffers")


def get_nccl_comm_handle(group: Any, force_new_comm: bool = False) -> NCCLCommHandle:
    """Raises NotImplementedError."""
    return NCCLCommHandle(group)


def destroy_all_managed_nccl_comm() -> None:
    """Nothing to do: there is none."""
