#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: call_costs.py [--write] INCLUDE TARGET=REPORT...

Each call of the device API says in its comment how many registers a thread of call_kernels.cpp's kernel for it has, and
its bytes of stack. This checks these numbers against what the compilers of the targets say in REPORT (report.py), and
with --write puts them there.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import gpu_resources

PAGES = {"ll_dispatch": "ll_", "ll_dispatch_recv": "ll_", "ll_combine": "ll_", "ll_combine_recv": "ll_", "ht_dispatch": "ht_", "ht_combine": "ht_", "channel": ""}
LINE = re.compile(r"^// Registers: (.*)\.\n", re.M)
COST = re.compile(r"(\d+)(?: and (\d+) bytes of stack)? \((\w+)\)")


def words(costs):
    """{target: (registers, stack)} in a comment's words."""
    return ", ".join(f"{registers}{f' and {stack} bytes of stack' if stack else ''} ({target})"
                     for target, (registers, stack) in sorted(costs.items(), reverse=True))


def call_in(text, name):
    """The match of the call's template or function line, behind its comment."""
    return re.search(rf"^(?:template <class Coop[^>]*>\n)?UCCLEP_FN \w+ {name}\(", text, re.M)


def main(write, include, reports):
    kernels = {}  # name: {target: (registers, stack)}
    for report in reports:
        target, _, path = report.partition("=")
        for name, kernel in gpu_resources.parse(target, gpu_resources.read_lines(path)).items():
            kernels.setdefault(name, {})[target] = (kernel.registers, kernel.stack)
    faults, seen = [], set()
    for page, prefix in PAGES.items():
        path = Path(include) / f"ucclep/device/{page}.hpp"
        text = path.read_text(encoding="utf-8")
        for name, costs in kernels.items():
            if not name.startswith(prefix) or (not prefix and name[:3] in ("ll_", "ht_")):
                continue
            call = call_in(text, name.removeprefix(prefix))
            if call is None:
                continue
            seen.add(name)
            before = text[:call.start()]
            line = next((m for m in LINE.finditer(before) if m.end() == call.start()), None)
            said = {t: (int(r), int(s or 0)) for r, s, t in COST.findall(line[1])} if line else {}
            if write:
                at = line.start() if line else call.start()
                text = f"{text[:at]}// Registers: {words(said | costs)}.\n{text[call.start():]}"
            elif said | costs != said:
                faults.append(f"{path.name}: {name} says {words(said) or 'nothing'}, the compiler {words(costs)}")
        if write:
            path.write_text(text, encoding="utf-8")
    faults += [f"no page declares {name}" for name in sorted(set(kernels) - seen)]
    print("\n".join(faults + [f"{len(seen)} calls, {len(faults)} faults"]))
    return len(faults) != 0 or not seen


if __name__ == "__main__":
    write = "--write" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    sys.exit(main(write, arguments[0], arguments[1:]))
