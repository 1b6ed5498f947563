#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: plot_test.py PLOT_PY

Draws two small results, one of the machine that the peers were measured on and one of another; and what ranks need to meet.
"""
import json
import os
import subprocess
import sys
import tempfile

OPTIONS = {"mode": "ht", "layout": "flat", "dtype": "bf16", "quant": False, "sms": 24, "hidden": 7168, "experts": 256, "topk": 8, "skew": 0}


def expect(condition, message):
    if not condition:
        sys.exit(f"plot_test.py: {message}")


def run_of(device, tokens):
    times = {"p50": 600.0, "p99": 640.0, "min": 590.0}
    series = [{"name": name, "time": "device_us", "device_us": times} for name in ("update", "dispatch", "update+dispatch")]
    return {"tool": "dispatch_perf", "options": OPTIONS, "ranks": [{"device": device}] * 4,
            "results": [{"tokens": t, "series": series} for t in tokens]}


def init_run():
    fields = ("init_ms", "group_create_ms", "group_create_sent_bytes", "group_create_received_bytes")
    results = [{"name": name, "ranks": ranks, **{field: {"p50": 2.0 * ranks, "min": ranks, "max": 3.0 * ranks} for field in fields}}
               for name in ("real", "simulated") for ranks in (2, 4)]
    return {"tool": "init_perf", "environment": {"cores": 2, "commit": "none"}, "results": results}


def main(plot):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump([run_of("NVIDIA H200", [1024, 4096]), run_of("host (wave 32)", [4096])], file)
        subprocess.run([sys.executable, plot, "--out", folder, path], check=True)
        names = {name for name in os.listdir(folder) if name != "run.json"}
        expect(names == {f"ht-dispatch-bf16{tail}.{kind}" for tail in ("", "-other") for kind in ("png", "svg")}, f"the files are {names}")
        with open(os.path.join(folder, "ht-dispatch-bf16.svg"), encoding="utf-8") as file:
            beside = file.read()
        with open(os.path.join(folder, "ht-dispatch-bf16-other.svg"), encoding="utf-8") as file:
            alone = file.read()
        expect("DeepEP" in beside and "libucclep flat, 24 SMs" in beside, "peers and libucclep are not in one picture")
        expect("DeepEP" not in alone and "libucclep flat, 24 SMs" in alone, "a host device stands beside the peers")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(init_run(), file)
        subprocess.run([sys.executable, plot, "--out", folder, path], check=True)
        with open(os.path.join(folder, "init.svg"), encoding="utf-8") as file:
            drawn = file.read()
        expect("init, real ranks" in drawn and "received, simulated ranks" in drawn, "a curve of init_perf is missing")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"tool": "ceiling_perf"}, file)
        refused = subprocess.run([sys.executable, plot, "--out", folder, path], check=False, stderr=subprocess.PIPE, text=True)
        expect(refused.returncode == 1 and "is no file of" in refused.stderr, "a file of another tool was taken")


if __name__ == "__main__":
    main(sys.argv[1])
