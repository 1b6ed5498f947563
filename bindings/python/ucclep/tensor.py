# SPDX-License-Identifier: Apache-2.0
"""Tensors of any framework as the library sees them: an address, a type, sizes and strides. Nothing is copied."""
from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

from . import abi, dlpack
from .enums import BY_NAME, ITEM_BYTES, DataType

HOST, DEVICE, SHARED = 1, 2, 3  # who can access the memory; SHARED is both

_PACK = struct.Struct("=IIQii8q").pack_into
_SIZE = ctypes.sizeof(abi.Tensor)
_MAGIC = abi.Tensor.MAGIC
_ZEROS = (0, 0, 0, 0)

# What there is to know of a tensor: who keeps it alive, address, DataType, sizes, strides, place, and whether it may be
# written.
Facts = tuple[Any, int, DataType, tuple, tuple, int, bool]
PLACE, WRITABLE = 5, 6


def is_pinned(facts: Facts) -> bool:
    """Whether it is a tensor of torch's in pinned memory, which a GPU can access."""
    owner = facts[0]
    return facts[PLACE] == HOST and hasattr(owner, "is_pinned") and owner.is_pinned()


def describe(where: Any, offset: int, facts: Facts) -> None:
    """Writes the library's description of a tensor into a buffer."""
    _, data, dtype, sizes, strides, _, _ = facts
    ndim = len(sizes)
    if not 1 <= ndim <= 4:
        raise ValueError(f"a tensor has {ndim} dimensions, expected 1 to 4")
    # To the library strides that are all zero mean contiguous.
    if not strides[-1] and not any(strides) and any(size > 1 for size in sizes) and all(sizes):
        raise ValueError(f"a tensor of shape {tuple(sizes)} repeats one element: make it contiguous")
    rest = _ZEROS[ndim:]
    _PACK(where, offset, _SIZE, _MAGIC, data, dtype, ndim, *sizes, *rest, *strides, *rest)


class TensorView:
    """A tensor of the caller's, described for the library. It keeps the tensor alive."""

    __slots__ = ("struct", "facts")

    def __init__(self, facts: Facts):
        self.struct = abi.Tensor.__new__(abi.Tensor)
        self.facts = facts
        describe(self.struct, 0, facts)

    def contiguous_bytes(self) -> int:
        """Its bytes, when they are one piece."""
        t = self.struct
        sizes = tuple(t.sizes[:t.ndim])
        if any(size > 1 and stride != packed
               for size, stride, packed in zip(sizes, t.strides, dlpack.contiguous_strides(sizes))):
            raise ValueError("the tensor is not contiguous: make it contiguous")
        return math.prod(sizes) * ITEM_BYTES[DataType(t.dtype)]


def tensor(array: Any, dtype: str | DataType | None = None) -> TensorView:
    """Describes `array`: a torch tensor, a NumPy array, or anything with __cuda_array_interface__ or DLPack.

    `dtype` says what the elements of a uint8 or uint16 array are, such as "bfloat16" or "float8_e4m3fn".
    """
    return array if type(array) is TensorView else TensorView(facts_of(array, dtype))


def facts_of(array: Any, dtype: str | DataType | None = None) -> Facts:
    """The facts of what tensor() takes."""
    if type(array) is TensorView:
        return array.facts
    wanted = None if dtype is None else data_type(dtype)
    if hasattr(array, "data_ptr") and hasattr(array, "is_cuda"):
        return _of_torch(array, wanted)
    if hasattr(array, "__array_interface__"):
        return _of_interface(array, array.__array_interface__, wanted, HOST)
    if hasattr(array, "__cuda_array_interface__"):
        return _of_interface(array, array.__cuda_array_interface__, wanted, DEVICE)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array, wanted)
    raise TypeError(f"{type(array).__name__} is not a tensor: expected a torch tensor, a NumPy array, or an object with "
                    "__cuda_array_interface__ or __dlpack__")


def data_type(name: Any) -> DataType:
    """The type of a name, of a NumPy, ml_dtypes or torch dtype, or of a DataType."""
    if isinstance(name, DataType):
        return name
    text = getattr(name, "name", None) or str(name).split(".")[-1]
    try:
        return BY_NAME[text]
    except KeyError:
        raise TypeError(f"dtype {text} is not supported: expected one of {', '.join(BY_NAME)}") from None


def _chosen(found: DataType | None, item_bytes: int, wanted: DataType | None, name: str) -> DataType:
    if wanted is None:
        if found is None:
            raise TypeError(f"a tensor of {name} needs dtype=, the type of its {item_bytes} bytes, as in "
                            'tensor(array, dtype="bfloat16")')
        return found
    if ITEM_BYTES[wanted] != item_bytes:
        raise TypeError(f"dtype {wanted.name} has {ITEM_BYTES[wanted]} bytes, but the tensor's {name} has {item_bytes}")
    return wanted


_torch_types: dict = {}


def _of_torch(t: Any, wanted: DataType | None) -> Facts:
    found = _torch_types.get(t.dtype)
    if found is None:
        found = _torch_types[t.dtype] = BY_NAME.get(str(t.dtype).split(".")[-1], 0)
    if wanted is not None or not found:
        found = _chosen(found or None, t.element_size(), wanted, str(t.dtype))
    return t, t.data_ptr(), found, t.shape, t.stride(), DEVICE if t.is_cuda else HOST, True


def _of_interface(array: Any, interface: dict, wanted: DataType | None, place: int) -> Facts:
    sizes = interface["shape"]
    item_bytes = int(interface["typestr"][2:])
    dtype = getattr(array, "dtype", None)
    name = getattr(dtype, "name", None) or _INTERFACE_NAMES.get(interface["typestr"][1:], interface["typestr"])
    byte_strides = interface.get("strides")
    if byte_strides is None:
        strides = dlpack.contiguous_strides(sizes)
    elif any(stride % item_bytes for stride in byte_strides):
        raise ValueError(f"byte strides {byte_strides} are not multiples of the element's {item_bytes} bytes")
    else:
        strides = tuple(stride // item_bytes for stride in byte_strides)
    data, read_only = interface["data"] if interface.get("data") is not None else (0, False)
    return array, data, _chosen(BY_NAME.get(name), item_bytes, wanted, name), sizes, strides, place, not read_only


_INTERFACE_NAMES = {"f2": "float16", "f4": "float32", "u1": "uint8", "b1": "bool", "i4": "int32", "i8": "int64"}


def _of_dlpack(array: Any, wanted: DataType | None) -> Facts:
    capsule = array.__dlpack__()
    t = dlpack.read(capsule)
    place = HOST if t.device_type == dlpack.CPU else SHARED if t.device_type in dlpack.SHARED else DEVICE
    dtype = _chosen(t.dtype, t.item_bytes, wanted, "its DLPack type")
    return (array, capsule), t.data, dtype, t.sizes, t.strides, place, True
