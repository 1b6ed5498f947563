#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every test that a page of docs/ names exists in the sources: `FILE`: "CASE"."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases_of(path):
    """The names of all cases in a file, whose literals may be cut into several."""
    cases = re.findall(r'TEST_CASE\(((?:\s*"(?:[^"\\]|\\.)*")+)', path.read_text())
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)) for literals in cases}


def missing_tests(page):
    """The reasons why tests that the page names do not exist, and the number of names."""
    named = re.findall(r'`([\w/.-]+\.cpp)`: "([^"]+)"', page.read_text())
    missing = []
    for file, case in named:
        path = ROOT / "test" / file
        if not path.is_file():
            missing.append(f"there is no test/{file}")
        elif case not in cases_of(path):
            missing.append(f'test/{file} has no case "{case}"')
    return missing, len(named)


def main():
    total, failed = 0, False
    for page in sorted((ROOT / "docs").glob("*.md")):
        missing, count = missing_tests(page)
        total += count
        failed |= bool(missing)
        for reason in missing:
            print(f"docs/{page.name}: {reason}")
    if total == 0:
        print("docs/ names no test")
    return failed or total == 0


if __name__ == "__main__":
    sys.exit(main())
