#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: sweep_test.py CEILING_PERF DISPATCH_PERF COMBINE_PERF

Several runs in one, and their times in relation to a file of ceiling_perf.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SHAPE = ["--experts", "32", "--topk", "4", "--hidden", "512", "--device", "host", "--timeout-ms", "60000", "-n", "2"]


def expect(condition, message):
    if not condition:
        sys.exit(f"sweep_test.py: {message}")


def run(path, *command):
    text = subprocess.run([*command, *SHAPE, "-J", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    if "--ceiling" in command:  # the widest table of these
        expect(re.search("^# +tokens .* ratio #wrong$", text, re.MULTILINE), "the table has no ratio")
        rows = [line for line in text.splitlines() if line.startswith("  ")]
        expect(rows and max(map(len, rows)) <= 120, f"lines of more than 120 columns: {rows}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def launches(ceiling):
    return {(c["name"], c["tokens"], c["row_bytes"]): c["time_us"]["p50"] for c in ceiling["results"] if c["rounds"] == 1}


def check_ratio(series, wanted):
    if wanted == 0:
        expect("ratio_to_ceiling" not in series, f"{series['name']} has a ratio to nothing")
        return
    expect(series["ceiling_us"] == wanted, f"{series['name']}: ceiling {series['ceiling_us']}, expected {wanted}")
    ratio = series[series["time"]]["p50"] / wanted
    expect(abs(series["ratio_to_ceiling"] - ratio) < 1e-9 * ratio, f"{series['name']}: ratio {series['ratio_to_ceiling']}")


def main(ceiling_perf, dispatch_perf, combine_perf):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ceiling.json")
        ceiling = launches(run(path, ceiling_perf, "--ht-tokens", "16", "--ll-tokens", "4,8", "--rounds", "2"))
        runs = run(os.path.join(folder, "dispatch.json"), dispatch_perf, "-g", "4", "--mode", "ht", "-b", "16", "-e", "32",
                   "--dtype", "bf16,fp8", "--sms", "1,2", "--layout", "flat,expert_major", "--ceiling", path)
        pair = run(os.path.join(folder, "combine.json"), combine_perf, "-g", "4", "-b", "8", "--ceiling", path)
        cast = run(os.path.join(folder, "cast.json"), dispatch_perf, "-g", "4", "--mode", "ll", "-b", "8", "-e", "8", "--quant", "--ceiling", path)
    chosen = [(r["options"]["layout"], r["options"]["dtype"], r["options"]["sms"]) for r in runs]
    expect(chosen == [(layout, dtype, sms) for layout in ("flat", "expert_major") for dtype in ("bf16", "fp8") for sms in (1, 2)],
           f"the runs are {chosen}")
    for one in runs:
        expect([r["tokens"] for r in one["results"]] == [16, 32], "the sizes are not 16 and 32")
        row = {"bf16": 1024, "fp8": 528}[one["options"]["dtype"]]
        for result in one["results"]:
            wanted = ceiling.get(("ht-dispatch", result["tokens"], row), 0)
            expect((wanted > 0) == (result["tokens"] == 16), "ceiling_perf measured other sizes than it was asked")
            update, dispatch, both = result["series"]
            for series, us in ((update, 0), (dispatch, wanted), (both, wanted)):
                check_ratio(series, us)
                expect(series["call_ns"]["min"] > 0, f"the calls of {series['name']} took no time")
    check_ratio(cast["results"][0]["series"][0], ceiling["ll-dispatch-cast", 8, 528])
    there, back = ceiling["ll-dispatch-experts", 8, 1024], ceiling["ll-combine", 8, 1024]
    both, combine = pair["results"][0]["series"]
    check_ratio(both, there + back)
    check_ratio(combine, back)


if __name__ == "__main__":
    main(*sys.argv[1:])
