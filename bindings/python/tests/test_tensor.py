# SPDX-License-Identifier: Apache-2.0
"""Tensors of frameworks are described without a copy."""
import numpy as np
import pytest

import ucclep
from ucclep import DataType, tensor


def described(view):
    t = view.struct
    return t.data, DataType(t.dtype), tuple(t.sizes[:t.ndim]), tuple(t.strides[:t.ndim])


def test_numpy():
    array = np.zeros((4, 6), np.float32)[::2, 1:]
    assert described(tensor(array)) == (array.ctypes.data, DataType.FLOAT32, (2, 5), (12, 1))


def test_numpy_types():
    for name, expected in {"float16": DataType.FLOAT16, "uint8": DataType.UINT8, "bool": DataType.UINT8,
                           "int32": DataType.INT32, "int64": DataType.INT64}.items():
        assert described(tensor(np.zeros(3, name)))[1] == expected


def test_explicit_dtype():
    array = np.zeros((2, 8), np.uint16)
    with pytest.raises(TypeError, match="dtype="):
        tensor(array)
    assert described(tensor(array, dtype="bfloat16")) == (array.ctypes.data, DataType.BFLOAT16, (2, 8), (8, 1))
    with pytest.raises(TypeError, match="1 bytes"):
        tensor(array, dtype="float8_e4m3fn")
    assert described(tensor(np.zeros(2, np.uint8), dtype=DataType.FLOAT8_E8M0))[1] == DataType.FLOAT8_E8M0
    with pytest.raises(TypeError, match="complex64"):
        tensor(array, dtype="complex64")


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert described(tensor(np.zeros(8, ml_dtypes.bfloat16)))[1] == DataType.BFLOAT16
    assert described(tensor(np.zeros(8, ml_dtypes.float8_e4m3fn)))[1] == DataType.FLOAT8_E4M3


def test_torch():
    torch = pytest.importorskip("torch")
    t = torch.zeros(4, 16, dtype=torch.bfloat16)[::2]
    assert described(tensor(t)) == (t.data_ptr(), DataType.BFLOAT16, (2, 16), (32, 1))
    assert described(tensor(torch.zeros(2, 8, dtype=torch.uint8), dtype="float8_e4m3fn"))[1] == DataType.FLOAT8_E4M3
    if hasattr(torch, "float8_e4m3fn"):
        assert described(tensor(torch.zeros(8, dtype=torch.float8_e4m3fn)))[1] == DataType.FLOAT8_E4M3
    with pytest.raises(TypeError, match="float64"):
        tensor(torch.zeros(2, dtype=torch.float64))


class OnlyDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    array = np.arange(24, dtype=np.int64).reshape(4, 6)[:, ::2]
    view = tensor(OnlyDlpack(array))
    assert described(view) == (array.ctypes.data, DataType.INT64, (4, 3), (6, 2))
    torch = pytest.importorskip("torch")
    t = torch.zeros(3, 8, dtype=torch.bfloat16)
    assert described(tensor(OnlyDlpack(t)))[:2] == (t.data_ptr(), DataType.BFLOAT16)


class OnGpu:
    __cuda_array_interface__ = {"version": 3, "shape": (2, 4), "typestr": "<f4", "data": (4096, False), "strides": None}


def test_cuda_array_interface():
    assert described(tensor(OnGpu())) == (4096, DataType.FLOAT32, (2, 4), (4, 1))


def test_memory_that_the_device_cannot_access(ranks, device):
    def rank_main(comm):
        foreign = OnGpu() if device == "host" else np.zeros(4, np.float32)
        with pytest.raises(ValueError, match="tokens is in memory of"):
            comm.view(foreign, "tokens")
        frozen = np.zeros(4, np.float32)
        frozen.flags.writeable = False
        if device == "host":
            with pytest.raises(ValueError, match="out is read-only"):
                comm.view(frozen, "out", output=True)
    ranks(1, rank_main)


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match="list is not a tensor"):
        tensor([1, 2])
    with pytest.raises(ValueError, match="5 dimensions"):
        tensor(np.zeros((1,) * 5, np.float32))
    with pytest.raises(ValueError, match="repeats one element"):
        tensor(np.broadcast_to(np.float32(1), (3, 4)))
    assert tensor(np.zeros((0, 16), np.float32)).struct.sizes[0] == 0


def test_windows_need_one_piece():
    assert tensor(np.zeros((3, 1, 5), np.float32)).contiguous_bytes() == 60
    with pytest.raises(ValueError, match="not contiguous"):
        tensor(np.zeros((4, 6), np.float32)[::2]).contiguous_bytes()


def test_a_view_is_taken_as_it_is():
    view = ucclep.tensor(np.zeros(4, np.uint16), dtype="bfloat16")
    assert ucclep.tensor(view) is view
