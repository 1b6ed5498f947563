#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: page_facts_test.py PAGE options TOOL HEADER | environment SOURCE-FOLDER

options: the options of the page's tables that begin with HEADER and those of TOOL --help are the same.
environment: the variables that the sources read and those of the page's tables are the same.
"""
import pathlib
import re
import subprocess
import sys


def first_cells(page, header):
    """The first column of the tables whose header begins with this word."""
    cells = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        rows = table.splitlines()
        if rows[0].startswith(f"| {header} |"):
            cells += [row.split("|")[1] for row in rows[2:]]
    return cells


def options(page, tool, header):
    """Sets of names: an option of --help has one or two, of which the page needs one."""
    text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout
    offered = [set(re.findall(r"--?[a-zA-Z][\w-]*", line.split()[0])) for line in text.splitlines() if re.match(r"  -", line)]
    described = set(re.findall(r"`(--?[\w-]+)", " ".join(first_cells(page, header)))) | {"--help", "--version"}
    wrong = [f"not in the page: {names}" for names in offered if not names & described]
    return wrong + [f"not in --help: {name}" for name in described if not any(name in names for names in offered)]


def environment(page, sources):
    read = set()
    for path in pathlib.Path(sources).rglob("*.cpp"):
        read |= set(re.findall(r"env::\w+\(\s*\"(UCCLEP_\w+)\"", path.read_text(encoding="utf-8")))
    described = set(re.findall(r"`(UCCLEP_\w+)`", " ".join(first_cells(page, "variable"))))
    return [f"not in the page: {name}" for name in read - described] + [f"not read: {name}" for name in described - read]


def main(page, what, *where):
    wrong = {"options": options, "environment": environment}[what](pathlib.Path(page).read_text(encoding="utf-8"), *where)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
