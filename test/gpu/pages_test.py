#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: pages_test.py INCLUDE EXAMPLE COMPILER...

Each page of the device API that ucclep/device.hpp names compiles by itself, for the GPU of COMPILER and with its
options, without a warning. With nvcc also: EXAMPLE, which includes one page, takes at most 45 of the library's headers.
"""
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MOST_HEADERS = 45

include, example, compiler = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] + [f"-I{sys.argv[1]}"]
nvcc = "nvcc" in Path(compiler[0]).name


def compile_page(page):
    source = f"#include <ucclep/{page}>\n"
    language = ["-x", "cu", "-ptx", "-Werror", "all-warnings"] if nvcc else ["-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run([*compiler, *language, "-o", "/dev/null", "-"], input=source, capture_output=True, text=True)
    return page, done.stderr if done.returncode else ""


pages = re.findall(r"^#include \"ucclep/(device/\S+)\"$", (include / "ucclep/device.hpp").read_text(), re.M)
assert len(pages) > 5, "device.hpp names no pages"
with ThreadPoolExecutor(2) as pool:
    failed = [(page, error) for page, error in pool.map(compile_page, [*pages, "device.hpp"]) if error]
for page, error in failed:
    print(f"{page} does not compile alone:\n{error}")
if nvcc:
    listed = subprocess.run([*compiler, "-M", example], capture_output=True, text=True, check=True).stdout.split()
    headers = sorted({word for word in listed if word.startswith(str(include / "ucclep"))})
    print(f"{len(headers)} headers of the library in {Path(example).name}, at most {MOST_HEADERS}")
    if not 0 < len(headers) <= MOST_HEADERS:
        failed.append((example, "headers"))
print(f"{len(pages) + 1} pages, {len(failed)} faults")
sys.exit(len(failed) != 0)
