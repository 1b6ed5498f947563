#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: check_target_test.py BUILD-TREE: the target `check` builds what the runs of `make check` need."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import catch_cases

tree = sys.argv[1]


def ninja(tool):
    return subprocess.run(["ninja", "-C", tree, "-t", tool, "check"], stdout=subprocess.PIPE, text=True, check=True).stdout


direct = ninja("query").split("outputs:")[0].splitlines()
built = {line.lstrip(" |") for line in direct} | set(ninja("inputs").splitlines())
files = {target["id"]: target["filename"] for target in catch_cases.introspected(tree, "targets")}
failed = False
for test in catch_cases.introspected(tree, "tests"):
    if not any(suite.endswith(":check") for suite in test["suite"]):
        continue
    needed = {os.path.relpath(file, tree) for target in test["depends"] for file in files[target]}
    for file in sorted(needed - built):
        print(f"make check runs {test['name']}, which needs {file}: add it to check_programs")
        failed = True
sys.exit(failed)
