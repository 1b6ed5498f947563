# SPDX-License-Identifier: Apache-2.0
"""From what a framework has, a process group or an MPI communicator, to a communicator on torch's device."""
from __future__ import annotations

from typing import Any

import torch
import ucclep


def connect(group: Any, mpi: Any, timeout_ms: int = 0) -> ucclep.Communicator:
    if group is None and mpi is None:
        raise ValueError("group (of torch.distributed) or comm (of mpi4py) must be given")
    # Without a GPU in torch tensors lie on the CPU, whatever the machine has.
    device = {"device_index": torch.cuda.current_device()} if torch.cuda.is_available() else {"device": "host"}
    if group is not None:
        return ucclep.Communicator.from_torch(group, timeout_ms=timeout_ms, **device)
    return ucclep.Communicator.from_mpi(mpi, timeout_ms=timeout_ms, **device)
