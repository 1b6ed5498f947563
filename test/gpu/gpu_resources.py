#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: gpu_resources.py --kernels PROGRAM --table FILE [--ptx FILE]... [--report TARGET=FILE]...

Checks what the GPU compilers said about every kernel, on every target that was built: no spills and no stack
beyond what the table grants a kernel on AMD and each kernel on some targets of NVIDIA, at most so many registers and so much static
shared memory as it says, and no kernel missing of those that PROGRAM prints. What the table says is for all kernels, but for those in its "kernels".
PTX must hold no non-coherent load: it may return what a cache line held before a peer wrote it. And no product that is part
of a sum: results would have other bits than on targets that round it.
Prints a table; exits 77 when no GPU code was built.

Scalar registers that clang parks in lanes of vector registers on AMD are spills, too, though they stay out of memory.
"""
import argparse
import dataclasses
import json
import re
import subprocess
import sys


@dataclasses.dataclass
class Kernel:
    registers: int = 0
    spills: int = 0
    stack: int = 0
    shared: int = 0


def parse_ptxas(lines):
    kernels = {}
    kernel = None
    for line in lines:
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = kernels.setdefault(match[1], Kernel())
        elif kernel is None:
            continue
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            # Once for the kernel, and once for each function that it calls.
            kernel.stack = max(kernel.stack, int(match[1]))
            kernel.spills += int(match[2]) + int(match[3])
        elif match := re.search(r"Used (\d+) registers", line):
            kernel.registers = int(match[1])
            if match := re.search(r"(\d+) bytes smem", line):
                kernel.shared = int(match[1])
    return kernels


def parse_clang(lines):
    kernels = {}
    kernel = None
    for line in lines:
        match = re.search(r"remark: +(?:.*: )?([A-Z][\w ]*?)(?: \[[^]]*\])?: (\S+)", line)
        if match is None:
            continue
        name, value = match[1], match[2]
        if name == "Function Name":
            kernel = kernels.setdefault(value, Kernel())
        elif name in ("VGPRs", "AGPRs"):
            kernel.registers += int(value)
        elif name in ("VGPRs Spill", "SGPRs Spill"):
            kernel.spills += int(value)
        elif name == "ScratchSize":
            kernel.stack = int(value)
        elif name == "Dynamic Stack" and value != "False":
            kernel.stack = max(kernel.stack, 1)
        elif name == "LDS Size":
            kernel.shared = int(value)
    return kernels


def parse(target, lines):
    kernels = parse_ptxas(lines) if target.startswith("sm_") else parse_clang(lines)
    return {name.removeprefix("ucclep_"): kernel for name, kernel in kernels.items()}


def problems(reports, table, expected):
    """Messages; reports = {target: {kernel: Kernel}}."""
    exceptions = table["kernels"]
    for name in sorted(set(exceptions) - expected):
        yield f"the table names {name}, which is no kernel of the library"
    for target, kernels in reports.items():
        for name in sorted(expected - set(kernels)):
            yield f"{name} is missing from {target}"
        for name in sorted(set(kernels) - expected):
            yield f"{name} is in {target}, but not in kernels.def"
        for name, kernel in sorted(kernels.items()):
            where = f"{name} on {target}"
            allowed = table | exceptions.get(name, {})
            granted = allowed["scalar_spills"] if target.startswith("gfx") else allowed["spilled_bytes"].get(target, 0)
            if kernel.spills > granted:
                yield f"{where} spills registers ({kernel.spills})"
            if kernel.stack > granted:
                yield f"{where} has a stack frame of {kernel.stack} bytes"
            if not 0 < kernel.registers <= allowed["registers"][target]:
                yield f"{where} uses {kernel.registers} registers, {allowed['registers'][target]} are allowed"
            if kernel.shared > allowed["static_shared_bytes"]:
                yield f"{where} has {kernel.shared} bytes of static shared memory, {allowed['static_shared_bytes']} are allowed"


def non_coherent_loads(ptx):
    for number, line in enumerate(ptx, 1):
        if re.search(r"\bld\.[\w.:]*\bnc\b|\bldu\.", line):
            yield f"PTX line {number} is a non-coherent load: {line.strip()}"


def fused_sums(ptx):
    for number, line in enumerate(ptx, 1):
        if re.search(r"\bfma\.\w+\.(?:\w+\.)*f(?:16|32|64)", line):
            yield f"PTX line {number} adds a product that is not rounded: {line.strip()}"


def show(reports):
    print(f"{'kernel':<32} {'target':<8} {'registers':>9} {'spills':>6} {'stack':>6} {'shared':>7}")
    for name in sorted({name for kernels in reports.values() for name in kernels}):
        for target, kernels in reports.items():
            if kernel := kernels.get(name):
                print(f"{name:<32} {target:<8} {kernel.registers:>9} {kernel.spills:>6} {kernel.stack:>6} {kernel.shared:>7}")


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--ptx", action="append", default=[])
    parser.add_argument("--report", action="append", default=[])
    options = parser.parse_args()
    if not options.report:
        print("no GPU code was built")
        return 77
    reports = {}
    for report in options.report:
        target, _, path = report.partition("=")
        reports[target] = parse(target, read_lines(path))
    show(reports)
    with open(options.table, encoding="utf-8") as file:
        table = json.load(file)
    expected = set(subprocess.run([options.kernels], stdout=subprocess.PIPE, text=True, check=True).stdout.split())
    found = list(problems(reports, table, expected))
    for path in options.ptx:
        lines = read_lines(path)
        found += [*non_coherent_loads(lines), *fused_sums(lines)]
    for message in found:
        print(f"WRONG: {message}")
    return 1 if found or not expected else 0


if __name__ == "__main__":
    sys.exit(main())
