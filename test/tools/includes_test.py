#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: includes_test.py TOOLS: check_includes.py finds each kind of fault in a small tree, and none in a good one."""
import os
import subprocess
import sys
import tempfile

TOOL = os.path.join(sys.argv[1], "check_includes.py")
DEVICE = "include/ucclep/device"
GOOD = {
    f"{DEVICE}/arch/types.hpp": "struct Packet {\n};\n",
    f"{DEVICE}/layout/window.hpp": '#include "ucclep/device/arch/types.hpp"\nstruct WindowLayout {\n  Packet first;\n};\n',
    f"{DEVICE}/ll/lines.hpp": '#include "ucclep/device/layout/window.hpp"\nstruct Lines {\n  WindowLayout window;\n};\n',
    "src/base/log.hpp": "\n",
    "src/host/api/comm.cpp": '#include "base/log.hpp"\n',
}
FAULTS = {
    "is not below it": {f"{DEVICE}/layout/window.hpp": '#include "ucclep/device/ll/lines.hpp"\n'},
    "src/base/log.hpp: includes src/host/api/comm.hpp, which is not below it": {
        "src/host/api/comm.hpp": "\n", "src/base/log.hpp": '#include "host/api/comm.hpp"\n'},
    "its folder is on no floor": {"src/attic/old.cpp": '#include "base/log.hpp"\n'},
    "modules include each other: src/base/fd src/base/log": {
        "src/base/log.hpp": '#include "base/fd.hpp"\n', "src/base/fd.hpp": "\n", "src/base/fd.cpp": '#include "base/log.hpp"\n'},
    "uses WindowLayout, and does not include": {f"{DEVICE}/ll/lines.hpp": "struct Lines {\n  WindowLayout window;\n};\n"},
    "a chain of 15 includes": {
        f"{DEVICE}/ll/a{i}.hpp": f'#include "ucclep/device/ll/a{i + 1}.hpp"\n' if i < 15 else "\n" for i in range(16)},
    "26 files, at most 25 are allowed": {f"{DEVICE}/ht/a{i}.hpp": "\n" for i in range(26)},
}


def check(changes):
    with tempfile.TemporaryDirectory() as tree:
        for path, text in {**GOOD, **changes}.items():
            os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
            with open(os.path.join(tree, path), "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([sys.executable, TOOL, tree], stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout


status, output = check({})
assert status == 0 and output == "4 headers, depth 2, 0 faults\n", output
for fault, changes in FAULTS.items():
    status, output = check(changes)
    assert status == 1, f"not found: {fault}"
    assert fault in output, f"expected: {fault}\n{output}"
print(f"{len(FAULTS)} kinds of faults found")
