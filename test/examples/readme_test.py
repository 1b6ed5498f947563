#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: readme_test.py README.md EXAMPLE.c

README.md shows the example as it is: exactly one C block, equal to the file but for its SPDX line.
"""
import difflib
import re
import sys


def main(readme, example):
    with open(readme, encoding="utf-8") as file:
        blocks = re.findall(r"^```c\n(.*?)^```$", file.read(), re.DOTALL | re.MULTILINE)
    if len(blocks) != 1:
        print(f"{readme} has {len(blocks)} C blocks, expected one: the example")
        return 1
    with open(example, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if "SPDX" in lines[0]:
        lines = lines[1:]
    difference = list(difflib.unified_diff(lines, blocks[0].splitlines(), example, readme, lineterm=""))
    print("\n".join(difference))
    return 1 if difference or not lines else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
