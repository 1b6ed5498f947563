#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: pages_test.py README.md C-API.md EXAMPLE.c INCLUDE-FOLDER

C-API.md shows the example as it is: exactly one C block, equal to the file but for its SPDX line. README.md has at most
150 lines, and one C block, which compiles as C99.
"""
import difflib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

MOST_LINES = 150


def c_block(page):
    blocks = re.findall(r"^```c\n(.*?)^```$", Path(page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1, f"{page} has {len(blocks)} C blocks, expected one"
    return blocks[0]


def difference(page, example):
    lines = Path(example).read_text(encoding="utf-8").splitlines()
    lines = lines[1:] if "SPDX" in lines[0] else lines
    return list(difflib.unified_diff(lines, c_block(page).splitlines(), example, page, lineterm=""))


def compiles(readme, include):
    compiler = shlex.split(os.environ.get("CC", "cc"))  # it may be two words, as in "ccache cc"
    options = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-unused-function", "-fsyntax-only", f"-I{include}"]
    return subprocess.run([*compiler, *options, "-x", "c", "-"], input=c_block(readme), text=True, check=False).returncode == 0


def main(readme, c_api, example, include):
    wrong = difference(c_api, example)
    lines = len(Path(readme).read_text(encoding="utf-8").splitlines())
    if lines > MOST_LINES:
        wrong.append(f"{readme} has {lines} lines, at most {MOST_LINES}")
    if not compiles(readme, include):
        wrong.append(f"the C block of {readme} does not compile")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
