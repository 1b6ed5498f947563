#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every test that docs/conformance.md names exists in the sources: `FILE`: "CASE"."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases_of(path):
    """The names of all cases in a file, whose literals may be cut into several."""
    cases = re.findall(r'TEST_CASE\(((?:\s*"(?:[^"\\]|\\.)*")+)', path.read_text())
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)) for literals in cases}


def main():
    named = re.findall(r'`([\w/.-]+\.cpp)`: "([^"]+)"', (ROOT / "docs" / "conformance.md").read_text())
    missing = []
    for file, case in named:
        path = ROOT / "test" / file
        if not path.is_file():
            missing.append(f"there is no test/{file}")
        elif case not in cases_of(path):
            missing.append(f'test/{file} has no case "{case}"')
    for line in missing:
        print(f"docs/conformance.md: {line}")
    if not named:
        print("docs/conformance.md names no test")
    return bool(missing) or not named


if __name__ == "__main__":
    sys.exit(main())
