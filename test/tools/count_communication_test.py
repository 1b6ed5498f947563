#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: count_communication_test.py SOURCE-FOLDER: the examples over ucclep/device/tiles.hpp communicate in few lines,
and the count can fail."""
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])


def count(*arguments):
    run = subprocess.run([sys.executable, root / "tools/count_communication.py", *arguments],
                         capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout.strip()


examples = [root / "examples" / name for name in ("moe_layer_fused.cu", "tiles_in_one_kernel.cu")]
code, text = count(*examples)
assert code == 0 and len(text.splitlines()) == 2, text
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "kernel.cu"
    file.write_text("a = tiles::begin(h, s);\n// tiles::next(x)\nint tiles;  // tiles::send(y)\nucclep::tiles::send(w, a);\n")
    assert count(file) == (0, "kernel.cu: 2 lines communicate"), count(file)
    assert count("--most", "1", file) == (1, "kernel.cu: 2 lines communicate, expected 1 to 1")
    file.write_text("int main() {}\n")
    assert count(file)[0] == 1
print("all as expected")
