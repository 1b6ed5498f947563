# SPDX-License-Identifier: Apache-2.0
"""Memory that can be registered, and windows: memory that peers can read and write."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .device_object import DeviceWindow, OnDevice, Slots
from .enums import Device
from .library import check, lib
from .lifetime import LibraryObject
from .waiting import wait

if TYPE_CHECKING:  # for annotations only: at run time nothing is imported back
    from .communicator import Communicator


class Memory(LibraryObject):
    """Bytes of the device (or of the host, mapped into the device), as a uint8 array to NumPy, CuPy and torch."""

    def __init__(self, comm: Communicator, nbytes: int, host: bool = False):
        self._comm = comm
        self._host = host
        self.nbytes = nbytes
        pointer = ctypes.c_void_p()
        allocate = lib.ucclEpMemAllocHost if host else lib.ucclEpMemAlloc
        check(allocate(comm.pointer, ctypes.byref(pointer), nbytes))
        self._set_pointer(pointer.value, comm)
        interface = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (self.pointer, False)}
        if host or comm.device == Device.HOST:
            self.__array_interface__ = interface
        else:
            self.__cuda_array_interface__ = interface

    def free(self) -> None:
        """No operation may use it any more. Communicator.destroy() frees what is left."""
        check((lib.ucclEpMemFreeHost if self._host else lib.ucclEpMemFree)(self._comm.pointer, self.pointer))
        self._forget()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.alive:
            self.free()


class Window(OnDevice):
    """Registered memory: tensors inside it are used in place. Made and closed by every rank, in the same order."""

    _device_object = DeviceWindow, lib.ucclEpWindowGetDevice

    def __init__(self, comm: Communicator, pointer: int, nbytes: int, owner: Any = None):
        self._comm = comm
        self._owner = owner  # the memory lives as long as the window
        window = ctypes.c_void_p()
        wait(lib.ucclEpWindowRegister, comm.pointer, pointer, nbytes, ctypes.byref(window), stop=comm.abort)
        self._set_pointer(window.value, comm)
        self.nbytes = nbytes

    def _device_slots(self) -> Slots:
        return self._comm.device_slots

    def close(self) -> None:
        self._end_by(lib.ucclEpWindowDeregister, self._comm.pointer, self.pointer, stop=self._comm.abort)
        self._owner = None

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.alive:
            self.close()
