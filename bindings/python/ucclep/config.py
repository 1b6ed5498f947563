# SPDX-License-Identifier: Apache-2.0
"""python -m ucclep.config --cflags --libs: how programs are compiled and linked with the library that this package loads."""
from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from . import _tool
from .library import lib


def cflags() -> list[str]:
    """None where the headers are a system's."""
    include = Path(__file__).parent / "include"
    return [f"-I{include}"] if include.is_dir() else []


def libs() -> list[str]:
    """The library by its file, with its folder for the loader; by its name where the system has it."""
    folder, name = os.path.split(lib._name)
    return [f"-L{folder}", f"-l:{name}", f"-Wl,-rpath,{folder}"] if folder else ["-lucclep"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ucclep.config", description=__doc__)
    parser.add_argument("--cflags", action="store_true", help="options for the compiler: where ucclep/ucclep.h lies")
    parser.add_argument("--libs", action="store_true", help="options for the linker")
    options = parser.parse_args()
    if not options.cflags and not options.libs:
        parser.error("expected --cflags, --libs, or both")
    print(shlex.join([*(cflags() if options.cflags else []), *(libs() if options.libs else [])]))
    return 0


if __name__ == "__main__":
    _tool.run("python -m ucclep.config", main)
