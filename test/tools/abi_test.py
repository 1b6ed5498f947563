#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that were built with an older ucclep.h run unchanged: the header only adds to it, and a header that does not is
refused with a line for each difference."""
import pathlib
import re
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1])
facts = source / "test/data/abi/edd2ba2.json"
header = (source / "include/ucclep/ucclep.h").read_text()


def check(path):
    done = subprocess.run([source / "tools/check_abi.py", "check", path, facts], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def changed(pattern, replacement):
    global broken
    broken, times = re.subn(pattern, replacement, broken, count=1)
    assert times == 1, f"ucclep.h has no {pattern}: adapt this test"


status, errors = check(source / "include/ucclep/ucclep.h")
assert status == 0, errors

broken = header
changed(r"uint64_t commands,", "uint64_t fresh; uint64_t commands,")  # ahead of others: their offsets move
changed(r"ucclEpTimeout = 8,", "ucclEpTimeout = 18,")
changed(r"int nranks; ", "int nranks; int fresh_in_padding; ")
changed(r"int ndim;", "int64_t ndim;")
changed(r"char internal\[128\];", "char internal[256];")
changed(r"(ucclEpCommCount\(ucclEpComm_t comm, )int\*", r"\1int64_t*")
changed(r"ucclEpResult_t ucclEpComplete\([^;]*;", "")
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "ucclep.h"
    path.write_text(broken)
    status, errors = check(path)
assert status == 1, errors
for expected in ("ucclEpStats_t.commands has offset 16 and size 8, expected 8 and 8",
                 "ucclEpTimeout is 18, expected 8",
                 "ucclEpGroupConfig_t.fresh_in_padding is new at offset 92, expected at least 96",
                 "ucclEpTensor_t.ndim has offset 24 and size 8, expected 20 and 4",
                 "ucclEpUniqueId.internal has offset 0 and size 256, expected 0 and 128",
                 "ucclEpUniqueId has 256 bytes, expected 128",
                 "function ucclEpCommCount has another type than it had",
                 "function ucclEpComplete is gone"):
    assert expected in errors, f"not reported: {expected}\n{errors}"
