# SPDX-License-Identifier: Apache-2.0
"""MemPool: memory of torch's that lies in a window."""
from __future__ import annotations

from typing import Any

import torch

from ..communicator import Communicator
from ..enums import Device
from ..library import check, lib
from ..lifetime import Unique


class MemPool(Unique):
    """GPU memory for tensors that operations use in place: those that are made in a `with` block of it.

        pool = ucclep.torch.MemPool(comm, 4 << 30)
        with pool:
            y = model(x)

    All ranks make it, with sizes of their own, and close it. torch takes it in pieces of 2 and of 20 MiB, and raises when
    there is none left. Taking one asks no driver and no other rank, so it may happen while a graph is captured.
    """

    def __init__(self, comm: Communicator, nbytes: int):
        if comm.device == Device.HOST:
            raise NotImplementedError("MemPool: torch has no pool for CPU tensors; on the host device any memory of the "
                                      "process can be a window")
        if not hasattr(torch.cuda, "MemPool"):
            raise NotImplementedError(f"MemPool: torch {torch.__version__} has no torch.cuda.MemPool, which needs 2.5 or newer")
        self.device = comm.info()["device_index"]
        self.memory = comm.alloc(nbytes)
        self._window = comm.register(self.memory)
        check(lib.ucclEpMemPoolOpen(self._window.pointer))
        # torch opens the library once more, by the name by which it was opened here: that is the same one.
        self._allocator = torch.cuda.memory.CUDAPluggableAllocator(lib._name, "ucclEpMemPoolAlloc", "ucclEpMemPoolFree")
        self._pool: Any = torch.cuda.MemPool(self._allocator.allocator())
        self._uses: list = []

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's memory is of this pool."""
        return self.memory.alive and 0 <= tensor.data_ptr() - self.memory.pointer < self.memory.nbytes

    def close(self) -> None:
        """[collective] Its tensors are gone, or not used any more."""
        self._pool = None
        self._window.close()
        self.memory.free()

    def __enter__(self) -> MemPool:
        use = torch.cuda.use_mem_pool(self._pool, torch.device("cuda", self.device))
        use.__enter__()
        self._uses.append(use)
        return self

    def __exit__(self, *reason: Any) -> None:
        self._uses.pop().__exit__(*reason)
