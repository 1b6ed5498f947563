# SPDX-License-Identifier: Apache-2.0
"""The functions of libucclep_device for kernels in Triton 3.6 and later, under the names of include/ucclep/device_library.h without
prefix and scope: the scope is the program.

    import ucclep.triton as ep

    @triton.jit
    def kernel(handle, ops, ...):
        op = ops + tl.program_id(0) * ep.OPERATION_BYTES
        ep.ll_dispatch_begin(handle, op, H, DTYPE, 0, 0, K, 1)
        ...
    kernel[(8,)](handle.device_address, ops, ..., **ep.launch_options())

Arguments are integers, and pointers for what the header calls an address. Each function gives an int32.
"""
from __future__ import annotations

from typing import Any

from triton.language import constexpr, core

from .device_object import library_file

#: Bytes that a pending operation takes for each program: UCCLEP_DEVICE_OPERATION_BYTES.
OPERATION_BYTES = constexpr(320)

#: How many arguments each function takes, by its name here.
FUNCTIONS: dict[str, int] = {}

_TYPES = {"u64": core.uint64, "u32": core.uint32, "i32": core.int32}


def launch_options() -> dict[str, Any]:
    """What a kernel that calls these functions is launched with, besides its arguments: the library, no load ahead of the call
    that fetches a row, and a launch that fails where programs would have to wait for room on the GPU."""
    return {"extern_libs": {"libucclep_device": library_file()}, "num_stages": 1, "launch_cooperative_grid": True}


def _function(symbol: str, parameters: str) -> Any:
    types = tuple(_TYPES[name] for name in parameters.split())

    def call(*arguments: Any, _semantic: Any = None) -> Any:
        if len(arguments) != len(types):
            raise TypeError(f"{symbol} takes {len(types)} arguments, but {len(arguments)} were given")
        cast = [core.cast(_semantic.to_tensor(value), kind, _semantic=_semantic) for value, kind in zip(arguments, types)]
        return core.extern_elementwise("libucclep_device", "", cast, {types: (symbol, core.int32)}, is_pure=False,
                                       _semantic=_semantic)

    call.__name__ = call.__qualname__ = symbol[len("ucclep_"):-len("_block")]
    FUNCTIONS[call.__name__] = len(types)
    return core.extern(call)


put = _function("ucclep_put_block", "u64 i32 u64 u64 u64 u64 u64")
put_signal = _function("ucclep_put_signal_block", "u64 i32 u64 u64 u64 u64 u64 i32")
signal = _function("ucclep_signal_block", "u64 i32 i32")
wait_signal = _function("ucclep_wait_signal_block", "u64 i32 u64")
flush = _function("ucclep_flush_block", "u64")
barrier = _function("ucclep_barrier_block", "u64 u32")

ll_dispatch_begin = _function("ucclep_ll_dispatch_begin_block", "u64 u64 u32 i32 u32 i32 u32 i32")
ll_dispatch_send = _function("ucclep_ll_dispatch_send_block", "u64 u32 u64 u64 u64 u32 u64")
ll_dispatch_end = _function("ucclep_ll_dispatch_end_block", "u64 u32")
ll_dispatch_rows = _function("ucclep_ll_dispatch_rows_block", "u64 u32")
ll_dispatch_recv = _function("ucclep_ll_dispatch_recv_block", "u64 u64 u64 u64 u64 u64 u32 u32")

ll_combine_begin = _function("ucclep_ll_combine_begin_block", "u64 u64 u32 i32 u32")
ll_combine_rows = _function("ucclep_ll_combine_rows_block", "u64 u32")
ll_combine_send = _function("ucclep_ll_combine_send_block", "u64 u32 u64")
ll_combine_end = _function("ucclep_ll_combine_end_block", "u64")
ll_combine_recv = _function("ucclep_ll_combine_recv_block", "u64 u64 u64 u64 u32 u32")
