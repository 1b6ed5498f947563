# SPDX-License-Identifier: Apache-2.0
"""libucclep.so: where it lies, and its functions, which raise when they fail."""
from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from . import abi
from .errors import error


def _candidates() -> list[str]:
    """UCCLEP_LIBRARY names the file; else the one of the wheel; else what the loader finds."""
    named = os.environ.get("UCCLEP_LIBRARY")
    if named:
        return [named]
    site = Path(__file__).parent.parent
    return [*map(str, sorted(site.glob(".ucclep.mesonpy.libs/libucclep.so.0*"))), "libucclep.so.0"]


def _open() -> ctypes.CDLL:
    reasons = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as reason:
            reasons.append(str(reason))
    missing = "libucclep.so cannot be loaded: " + "; ".join(reasons)
    if sys.argv[:1] == ["-m"]:  # python -m ucclep.info, or another tool: whoever started it wants no traceback
        sys.exit(f"ucclep: error: {missing}")
    raise ImportError(missing)


lib = _open()
for _name, _arguments in abi.FUNCTIONS.items():
    getattr(lib, _name).argtypes = _arguments
for _name, _arguments in abi.STRINGS.items():
    getattr(lib, _name).argtypes = _arguments
    getattr(lib, _name).restype = ctypes.c_char_p


def check(code: int) -> None:
    """Raises the error of the calling thread's last call."""
    if code:
        message = lib.ucclEpGetLastError(None) or lib.ucclEpGetErrorString(code)
        raise error(code, message.decode(errors="replace"))


def text_of(function, *arguments) -> str:
    """What a function writes that takes (.., char* text, size_t* len)."""
    length = ctypes.c_size_t()
    check(function(*arguments, None, ctypes.byref(length)))
    buffer = ctypes.create_string_buffer(length.value)
    check(function(*arguments, buffer, ctypes.byref(length)))
    return buffer.value.decode(errors="replace")


def version() -> str:
    """The library's version, as "0.1.0"."""
    number = ctypes.c_int()
    check(lib.ucclEpGetVersion(ctypes.byref(number)))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


def build_info() -> str:
    """Version, embedded GPU code, transports."""
    return text_of(lib.ucclEpGetBuildInfo)
