#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: topo_test.py UCCLEP-TOPO FOLDER-OF-DOUBLES

ucclep-topo on a machine with GPUs asks their drivers, here doubles, for the links between them.
"""
import json
import os
import subprocess
import sys

TOOL, DOUBLES = sys.argv[1:]


def plan(**environment):
    done = subprocess.run([TOOL, "--json"], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, "LD_LIBRARY_PATH": DOUBLES, **environment})
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout)


def doubles_of(machine):
    return [gpu for gpu in machine["gpus"] if gpu["model"] == "double"]


def main():
    one_vendor = plan(UCCLEP_DOUBLE_VERSION="12080")  # too old for HIP
    gpus = doubles_of(one_vendor["machines"][0])
    assert [gpu["pci"] for gpu in gpus] == [f"0000:{bus}:00.0" for bus in (10, 11, 12, 13)], gpus
    assert all(gpu["links"] == {"kind": "nvlink", "island": "0000:10:00.0", "fabric": ""} for gpu in gpus), gpus
    if len(one_vendor["machines"][0]["gpus"]) == 4:
        assert one_vendor["domains"] == [{"kind": "nvlink", "ranks": [0, 1, 2, 3], "whole_bytes": 128}], one_vendor["domains"]

    gpus = doubles_of(plan(UCCLEP_DOUBLE_LINKED="2")["machines"][0])
    assert [gpu["vendor"] for gpu in gpus] == ["NVIDIA"] * 4 + ["AMD"] * 4, gpus
    assert [gpu["links"]["kind"] for gpu in gpus] == ["nvlink"] * 4 + ["xgmi"] * 4, gpus
    assert [gpu["links"]["island"] for gpu in gpus[4:]] == ["0000:40:00.0"] * 2 + ["0000:42:00.0"] * 2, gpus

    alone = doubles_of(plan(UCCLEP_DOUBLE_LINKED="1")["machines"][0])
    assert all(gpu["links"]["kind"] == "" for gpu in alone), alone


main()
