#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: count_communication.py [--most N] FILE...

Counts the lines of a kernel that communicate, those that call ucclep::tiles, and ends with 1 where a file has none or
more than N (15)."""
import argparse
import pathlib
import re
import sys

calls = "begin join send close close_wave serve next wait row scales entry send_back done close_back results await_end"
call = re.compile(r"\btiles::(?:%s)\(" % "|".join(calls.split()))


def communicating(text):
    return [line for line in text.splitlines() if call.search(line.split("//")[0])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--most", type=int, default=15)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    good = True
    for file in options.files:
        lines = communicating(file.read_text())
        right = 0 < len(lines) <= options.most
        good = good and right
        print(f"{file.name}: {len(lines)} lines communicate" + ("" if right else f", expected 1 to {options.most}"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
