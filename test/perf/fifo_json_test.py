#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: fifo_json_test.py FIFO_PERF

Runs fifo_perf with lists and -J, and looks for what readers of the JSON file count on.
"""
import json
import os
import subprocess
import sys
import tempfile


def expect(condition, message):
    if not condition:
        sys.exit(f"fifo_json_test.py: {message}")


def run(tool, device, *more):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        command = [tool, "--device", device, "-c", "20000", "--rounds", "10", "-n", "3", "-b", "1,4", *more, "-J", path]
        subprocess.run(command, check=True, stdout=subprocess.PIPE)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def check_row(row, has_bare):
    name = row["name"]
    expect(len(row["value"]["samples"]) == 3, f"{name} has {len(row['value']['samples'])} samples")
    expect(row["value"]["min"] > 0, f"{name}: {row['value']['min']}")
    expect(row["verified"] > 0 and row["wrong"] == 0, f"{name}: {row['wrong']} of {row['verified']} are wrong")
    expect(("ratio" in row) == ("bare" in row) == has_bare, f"{name}: a baseline, or none, against expectation")
    if has_bare:
        ratio = row["value"]["p50"] / row["bare"]["p50"]
        expect(abs(row["ratio"] - ratio) < 1e-9 * ratio, f"{name}: ratio {row['ratio']} instead of {ratio}")


def main(tool):
    threads = run(tool, "threads", "-p", "1,2")
    rows = [(row["name"], row["producers"], row["batch"]) for row in threads["results"]]
    expect(rows == [("push", 1, 1), ("push", 1, 4), ("push", 2, 1), ("push", 2, 4), ("trip", 1, 1)], f"rows {rows}")
    for row in threads["results"]:
        check_row(row, row["producers"] == 1)
    lanes = run(tool, "host")
    names = [row["name"] for row in lanes["results"]]
    expect(names == ["push", "push-ordered"] * 2 + ["trip", "trip-ordered"], f"rows {names}")
    for row in lanes["results"]:
        check_row(row, row["unit"] == "us")
    expect(lanes["tool"] == "fifo_perf" and lanes["options"]["device"] == "host", "tool or device")


if __name__ == "__main__":
    main(sys.argv[1])
