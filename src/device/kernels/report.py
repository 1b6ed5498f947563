#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: report.py FILE COMMAND...

Runs a GPU compiler and keeps what it says about each kernel's resources in FILE. Warnings are shown, and everything when it fails.
"""
import re
import subprocess
import sys

REPORT = re.compile(r"ptxas info|remark:|bytes stack frame")


def main(path, command):
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    lines = done.stderr.splitlines()
    with open(path, "w", encoding="utf-8") as report:
        report.writelines(line + "\n" for line in lines if REPORT.search(line))
    if done.returncode != 0 or "warning" in done.stderr:
        sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
