# SPDX-License-Identifier: Apache-2.0
"""What kernels know of a group, a handle or a window: the objects that the functions of libucclep_device take by address.

include/ucclep/device_library.h has their layout in C, and the functions.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import c_int, c_uint, c_uint32, c_uint64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .library import check, lib
from .lifetime import LibraryObject

if TYPE_CHECKING:  # for annotations only: at run time nothing is imported back
    from .communicator import Communicator

ABI = 38  # UCCLEP_DEVICE_ABI


class DeviceObject(ctypes.Structure):
    """What each begins with."""

    MAGIC = 0
    _fields_ = [("size", c_uint), ("magic", c_uint), ("abi", c_uint)]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(type(self)), self.MAGIC, ABI)


class DeviceGroup(DeviceObject):
    MAGIC = 0x55450017
    _fields_ = [("rank", c_int), ("rest", c_uint64 * 77)]


class DeviceHandle(DeviceObject):
    MAGIC = 0x55450013
    _fields_ = [("unused", c_uint), ("group", DeviceGroup), ("rest", c_uint64 * 60)]

    def __init__(self) -> None:
        super().__init__()
        self.group = DeviceGroup()


class DeviceWindow(DeviceObject):
    MAGIC = 0x55450014
    _fields_ = [("id", c_uint32), ("rank", c_int), ("ranks", c_int), ("bytes", c_uint64), ("data", c_uint64),
                ("peers", c_uint64), ("peer_bytes", c_uint64)]


class Slots:
    """Memory of a communicator's device for these objects: they are small, and an allocation takes at least 2 MiB of a GPU."""

    BYTES, COUNT = 2048, 256
    assert max(map(ctypes.sizeof, (DeviceGroup, DeviceHandle, DeviceWindow))) <= BYTES

    def __init__(self, comm: Communicator):
        self._comm = comm
        self.free: list[int] = []

    def hold(self, there: DeviceObject) -> int:
        """Address of a copy."""
        if not self.free:
            begin = self._comm.alloc(self.BYTES * self.COUNT).pointer  # freed with the communicator
            self.free = [begin + i * self.BYTES for i in reversed(range(self.COUNT))]
        self._comm.copy(self.free[-1], ctypes.addressof(there), there.size)
        self._comm.synchronize()
        return self.free.pop()


class OnDevice(LibraryObject):
    """For classes with an object that kernels are given: `_device_object` says its kind and what fills it."""

    _device_object: tuple[type[DeviceObject], Any]
    _device_address: int | None = None

    def _device_slots(self) -> Slots:
        raise NotImplementedError

    @property
    def device_address(self) -> int:
        """Address, in memory of the device, of the object that kernels are given; valid until this one is destroyed.

        The first use copies it there, and waits for the default stream: not while a graph is captured.
        """
        pointer = self.pointer  # raises when it is destroyed
        if self._device_address is None:
            kind, fill = self._device_object
            there = kind()
            check(fill(pointer, ctypes.byref(there)))
            self._device_address = self._device_slots().hold(there)
        return self._device_address

    def _forget(self) -> None:
        super()._forget()
        if self._device_address is not None:
            self._device_slots().free.append(self._device_address)
            self._device_address = None


def library_file(kind: str = "bc") -> str:
    """Path of libucclep_device.bc or .ptx: UCCLEP_DEVICE_LIBRARY names the folder, else it is in the wheel or beside libucclep.so."""
    named = os.environ.get("UCCLEP_DEVICE_LIBRARY")
    name, folders = f"libucclep_device.{kind}", [Path(named)] if named else [Path(__file__).parent, Path(_path_of_library()).parent]
    for folder in folders:
        if (folder / name).is_file():
            return str(folder / name)
    raise FileNotFoundError(f"{name} does not exist in {' or '.join(map(str, folders))}: build it with `make device-library`, "
                            "and set UCCLEP_DEVICE_LIBRARY to its folder")


def _path_of_library() -> str:
    """Where the loader found libucclep.so."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[5:]
            if path and Path(path[0].strip()).name.startswith("libucclep.so"):
                return path[0].strip()
    return lib._name
