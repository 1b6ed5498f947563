#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/upgrading.md names each removed variable with its successor, and today's ABI numbers, as the sources have them."""
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
page = (source / "docs/upgrading.md").read_text()


def number(file, pattern):
    return re.search(pattern, (source / file).read_text())[1]


def differences(text, removed, numbers):
    """removed: the variables that each successor's text names, by removed variable."""
    section = text.split("| removed variable | successor |")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(UCCLEP_\w+)` \| (.*) \|$", section, re.M))
    for name in removed.keys() ^ rows.keys():
        yield f"{name} is in one of the page and the table only"
    for name, successors in removed.items():
        for successor in successors:
            if f"`{successor}`" not in rows.get(name, ""):
                yield f"{name}: the page does not name {successor}"
    for what, value in numbers.items():
        if f"{what} {value}" not in text:
            yield f"the page does not say {what} {value}"


config = (source / "src/host/context/config.cpp").read_text()
constants = dict(re.findall(r'constexpr const char\* (\w+) =\s*"([^"]*)"', config))
table = re.search(r"RemovedVariable removed\[\] = \{\n(.*?)\n\};", config, re.S)[1]
removed = {}
for name, text, constant in re.findall(r'\{"(UCCLEP_\w+)", (?:"([^"]*)"|(\w+))\}', table):
    removed[name] = re.findall(r"UCCLEP_\w+", text or constants[constant])
assert len(removed) == table.count("{") >= 3, table

numbers = {"ABI": number("include/ucclep/transport.h", r"#define UCCLEP_TRANSPORT_ABI (\d+)"),
           "device ABI": number("include/ucclep/device/layout/objects.hpp", r"device_abi = (\d+)")}
found = list(differences(page, removed, numbers))
assert not found, found

# What the page lacks is found.
assert any("UCCLEP_NEW" in line for line in differences(page, {**removed, "UCCLEP_NEW": []}, numbers))
assert any("UCCLEP_OTHER" in line for line in differences(page, {**removed, "UCCLEP_HT_RING": ["UCCLEP_OTHER"]}, numbers))
assert list(differences(page, removed, {"device ABI": "9999"}))
