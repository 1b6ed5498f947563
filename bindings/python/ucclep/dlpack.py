# SPDX-License-Identifier: Apache-2.0
"""DLPack capsules: where the memory of another framework's tensor lies."""
from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import NamedTuple

from .enums import DataType


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", ctypes.POINTER(c_int64)),
                ("strides", ctypes.POINTER(c_int64)), ("byte_offset", c_uint64)]


_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_TYPES = {(_FLOAT, 16): DataType.FLOAT16, (_FLOAT, 32): DataType.FLOAT32, (_BFLOAT, 16): DataType.BFLOAT16,
          (_UINT, 8): DataType.UINT8, (_BOOL, 8): DataType.UINT8, (_INT, 32): DataType.INT32,
          (_INT, 64): DataType.INT64, (10, 8): DataType.FLOAT8_E4M3, (12, 8): DataType.FLOAT8_E5M2,
          (14, 8): DataType.FLOAT8_E8M0}

#: kDLCPU, and what both host and device can access: kDLCUDAHost, kDLROCMHost, kDLCUDAManaged.
CPU = 1
SHARED = {3, 11, 13}


class Contents(NamedTuple):
    data: int
    dtype: DataType | None
    item_bytes: int
    sizes: tuple
    strides: tuple  # in elements
    device_type: int


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, [ctypes.py_object, c_char_p]


def read(capsule) -> Contents:
    """The contents of a capsule, which stays unconsumed: it frees what it holds when it goes, so its owner has to live."""
    t = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    sizes = tuple(t.shape[:t.ndim])
    strides = tuple(t.strides[:t.ndim]) if t.strides else contiguous_strides(sizes)
    dtype = _TYPES.get((t.code, t.bits)) if t.lanes == 1 else None
    return Contents((t.data or 0) + t.byte_offset, dtype, t.bits * t.lanes // 8, sizes, strides, t.device_type)


def contiguous_strides(sizes: tuple) -> tuple:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
