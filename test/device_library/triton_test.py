#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: triton_test.py SOURCE-TREE LIBRARY-FOLDER      (UCCLEP_LIBRARY names libucclep.so)

Compiles the kernels of examples/triton_dispatch.py, and one that calls every function, for sm_90 by Triton's own compiler, as a launch
does: with its LLVM, which links the bitcode, and its ptxas. No GPU is needed. Exit code 77: there is no triton.
"""
import importlib
import os
import re
import sys
import tempfile
from pathlib import Path

try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
except ImportError:
    print("triton is not installed")
    sys.exit(77)
import ucclep.triton as ep

POINTERS = {"x": "*fp32", "rows": "*fp32", "weights": "*fp32", "received": "*fp32", "result": "*fp32", "experts": "*i64", "ops": "*u8",
            "good": "*i32", "handle": "i64", "group": "i64"}


def compiled(kernel, constants, options):
    signature = {name: "constexpr" if name in constants else POINTERS.get(name, "i32") for name in kernel.arg_names}
    made = triton.compile(ASTSource(fn=kernel, signature=signature, constexprs=constants), target=GPUTarget("cuda", 90, 32),
                          options={"num_warps": 4, **options})
    ptx, called = made.asm["ptx"], set(re.findall(r'symbol = "(ucclep_\w+)"', made.asm["ttir"]))
    if re.search(r"^\s*\.extern \.func", ptx, re.MULTILINE) or not made.asm["cubin"] or not called:
        sys.exit(f"{kernel.fn.__name__} is not whole")
    if re.search(r"ld\.global\S*\.nc", ptx):
        sys.exit(f"{kernel.fn.__name__} has loads by the non-coherent path")
    return called


def every_function(folder):
    """A kernel that calls each function of the library once. Triton reads a kernel's text from its file."""
    calls = [f"    ok &= ep.{name}({', '.join(['group'] * count)})\n" for name, count in ep.FUNCTIONS.items()]
    (folder / "every_function.py").write_text("import triton\nimport triton.language as tl\nimport ucclep.triton as ep\n\n\n@triton.jit\n"
                                              "def kernel(group, good):\n    ok = 1\n" + "".join(calls) + "    tl.store(good, ok)\n")
    sys.path.insert(0, str(folder))
    return importlib.import_module("every_function").kernel


def main(source, library):
    os.environ["UCCLEP_DEVICE_LIBRARY"] = library
    sys.path.insert(0, str(source / "examples"))
    example = importlib.import_module("triton_dispatch")
    constants = {"H": example.HIDDEN, "K": example.TOP_K, "DTYPE": 3}
    with tempfile.TemporaryDirectory() as work:
        os.environ["TRITON_CACHE_DIR"] = work
        for kernel, given in ((example.dispatch, constants), (example.combine, constants), (every_function(Path(work)), {})):
            called = compiled(kernel, given, ep.launch_options())
            print(f"{kernel.fn.__name__}: {len(called)} functions of the library")
    if len(called) != len(ep.FUNCTIONS):
        sys.exit(f"{len(ep.FUNCTIONS)} functions, called were {sorted(called)}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2])
