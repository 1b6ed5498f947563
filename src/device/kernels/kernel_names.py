#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: kernel_names.py OUTPUT SOURCE...

Writes kernel_names(): the names of all kernels in the sources.
"""
import re
import sys

KERNEL = re.compile(r"^UCCLEP_KERNEL\((\w+),", re.MULTILINE)
TEXT = """#include "device/kernels/kernel_names.hpp"

namespace ucclep {{

std::span<const char* const> kernel_names() {{
  static constexpr const char* names[] = {{
{names}  }};
  return names;
}}

}}  // namespace ucclep
"""


def main(output, sources):
    names = []
    for source in sources:
        with open(source, encoding="utf-8") as file:
            names += KERNEL.findall(file.read())
    with open(output, "w", encoding="utf-8") as file:
        file.write(TEXT.format(names="".join(f'      "{name}",\n' for name in names)))


main(sys.argv[1], sys.argv[2:])
