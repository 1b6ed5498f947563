#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: library_test.py bitcode FILE.bc SOURCE-TREE CLANG [PTXAS]     links a kernel with the bitcode, down to code for a GPU
       library_test.py ptx FILE.ptx SOURCE-TREE NVCC                 assembles the PTX, and links a kernel with it

Both check that the library has exactly the functions of ucclep/device_library.h and needs none of others. No GPU is needed.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DECLARED = re.compile(r"^UCCLEP_LIBRARY_FN int32_t (ucclep_\w+)\(", re.MULTILINE)
ASSEMBLE = ["-arch=sm_90", "-O1"]


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def check_names(kind, found, source):
    declared = set(DECLARED.findall((source / "include/ucclep/device_library.h").read_text()))
    if len(declared) < 20 or set(found) != declared:
        sys.exit(f"{kind} lacks {sorted(declared - set(found))}, and has {sorted(set(found) - declared)} that the header does not declare")
    print(f"{kind}: {len(declared)} functions")


def check_loads(kind, text):
    """No load may go by the non-coherent path: it may return what a line held before a peer wrote it."""
    loads = re.findall(r"^\s*(ld\.global\S*\.nc\S*) ", text, re.MULTILINE)
    if loads:
        sys.exit(f"{kind} has {len(loads)} loads by the non-coherent path")


def tools_of(clang):
    """LLVM's tools beside the clang."""
    folder = Path(run(clang, "-print-prog-name=llvm-link").strip()).parent
    return {name: folder / name for name in ("llvm-nm", "llvm-link", "llc")}


def check_bitcode(work, library, source, clang, ptxas=None):
    tools = tools_of(clang)
    check_names("bitcode", re.findall(r" T (\w+)$", run(tools["llvm-nm"], "--defined-only", library), re.MULTILINE), source)
    foreign = [name for name in re.findall(r" U (\S+)$", run(tools["llvm-nm"], library), re.MULTILINE) if not name.startswith("llvm.")]
    if foreign:
        sys.exit(f"bitcode needs {foreign}")
    flags = ["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_90", "--cuda-path=/nonexistent", "-nocudainc", "-nocudalib", "-std=c++20", "-O3"]
    run(clang, *flags, f"-I{source}/include", "-c", "-emit-llvm", "-o", work / "kernel.bc", source / "test/device_library/kernel.cu")
    run(tools["llvm-link"], "--only-needed", "-o", work / "linked.bc", work / "kernel.bc", library)
    run(tools["llc"], "-O3", "-mcpu=sm_90", "-mattr=+ptx84", "-o", work / "linked.ptx", work / "linked.bc")
    text = (work / "linked.ptx").read_text()
    if re.search(r"^\s*\.extern", text, re.MULTILINE) or ".entry exchange" not in text:
        sys.exit("the linked kernel is not whole: " + "; ".join(re.findall(r"^\s*\.(?:extern|visible) .*$", text, re.MULTILINE)))
    check_loads("the linked kernel", text)
    if ptxas is None:
        print("the kernel is linked; there is no ptxas to assemble it")
        return
    run(ptxas, *ASSEMBLE, "-o", work / "linked.cubin", work / "linked.ptx")
    print(f"the kernel is linked: {(work / 'linked.cubin').stat().st_size} bytes for sm_90")


def check_ptx(work, library, source, nvcc):
    text = library.read_text()
    check_names("PTX", re.findall(r"^\.visible \.func .*?\b(ucclep_\w+)\($", text, re.MULTILINE), source)
    foreign = re.findall(r"^\.extern .*$", text, re.MULTILINE)
    if foreign:
        sys.exit(f"PTX needs {foreign}")
    check_loads("PTX", text)
    folder = Path(nvcc).resolve().parent
    run(folder / "ptxas", *ASSEMBLE, "-c", "-o", work / "library.cubin", library)
    run(nvcc, "-std=c++20", "-arch=sm_90", "-rdc=true", "-cubin", f"-I{source}/include", "-o", work / "kernel.cubin", source / "test/device_library/kernel.cu")
    run(folder / "nvlink", "-arch=sm_90", "-o", work / "linked.cubin", work / "kernel.cubin", work / "library.cubin")
    print(f"the kernel is linked: {(work / 'linked.cubin').stat().st_size} bytes for sm_90")


def main(what, library, source, compiler, *more):
    with tempfile.TemporaryDirectory() as work:
        {"bitcode": check_bitcode, "ptx": check_ptx}[what](Path(work), Path(library), Path(source), compiler, *more)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
