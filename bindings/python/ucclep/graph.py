# SPDX-License-Identifier: Apache-2.0
"""Graphs of the host device. On a GPU operations are captured by its framework, as in torch.cuda.graph()."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .library import check, lib
from .lifetime import LibraryObject
from .stream import stream_pointer

if TYPE_CHECKING:  # for annotations only: at run time nothing is imported back
    from .communicator import Communicator


class Graph(LibraryObject):
    """Operations that were captured between begin() and end() (or in a `with` block), to be launched any number of times.

    Tensors are those of the capture: they live as long as the graph, and each launch reads and writes them again.
    """

    def __init__(self, comm: Communicator, stream: Any):
        self._comm = comm
        self._stream = stream_pointer(stream)
        self._set_pointer(None, comm)

    def begin(self) -> None:
        """From here on the stream records instead of running."""
        check(lib.ucclEpStreamBeginCapture(self._comm.pointer, self._stream))

    def end(self) -> None:
        pointer = ctypes.c_void_p()
        check(lib.ucclEpStreamEndCapture(self._comm.pointer, self._stream, ctypes.byref(pointer)))
        self.pointer = pointer.value

    def launch(self, stream: Any = None) -> None:
        """Runs the graph, on every rank alike."""
        check(lib.ucclEpGraphLaunch(self._comm.pointer, self.pointer, stream_pointer(stream)))

    def destroy(self) -> None:
        check(lib.ucclEpGraphDestroy(self._comm.pointer, self.pointer))
        self._forget()

    def __enter__(self) -> Graph:
        self.begin()
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()
