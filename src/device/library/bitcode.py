#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: bitcode.py OUTPUT CLANG [ARGUMENT...]: the bitcode of what clang compiles with these arguments, for any program to link.

clang writes what only holds for its own program: how denormals are flushed there, a module flag that must not differ from
the other program's, and of each function the GPU and the version of PTX, where a function is inlined only into its like.
Both are left out: the program that links the bitcode decides.
"""
import re
import subprocess
import sys


def neutral(text):
    """The module as text, without the flag and the two attributes."""
    flag = re.search(r'^(!\d+) = !\{i32 4, !"nvvm-reflect-ftz", i32 \d+\}\n', text, re.MULTILINE)
    if not flag:
        sys.exit("bitcode.py: clang wrote no flag nvvm-reflect-ftz")
    text = text.replace(flag[0], "")
    text = re.sub(r"^(!llvm\.module\.flags = !\{.*?)(?:, )?" + flag[1] + r"\b", r"\1", text, flags=re.MULTILINE)
    return re.sub(r' "target-(?:cpu|features)"="[^"]*"', "", text)


def main(output, clang, *arguments):
    text = subprocess.run([clang, *arguments, "-S", "-emit-llvm", "-o", "-"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assemble = [clang, "--target=nvptx64-nvidia-cuda", "-x", "ir", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm", "-o", output, "-"]
    subprocess.run(assemble, check=True, input=neutral(text), text=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
