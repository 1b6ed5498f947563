#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: init_json_test.py INIT_PERF

Runs init_perf small with -J, and looks for what readers of the JSON file count on: times of every repeat, and bytes of a rank that
grow by as much with each rank. Ranks that cannot meet in time are an error that says so.
"""
import json
import os
import subprocess
import sys
import tempfile

STATISTICS = ("init_ms", "group_create_ms", "group_create_sent_bytes", "group_create_received_bytes")


def expect(condition, message):
    if not condition:
        sys.exit(f"init_json_test.py: {message}")


def run(tool):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        command = [tool, "-r", "2,4,8", "--real", "4", "-n", "2", "--timeout-ms", "60000", "-J", path]
        subprocess.run(command, check=True, stdout=subprocess.PIPE)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def check_row(row):
    of = f"{row['ranks']} {row['name']} ranks"
    for name in STATISTICS:
        expect(len(row[name]["samples"]) == 2 and row[name]["min"] > 0, f"{of}, {name}: {row[name]['samples']}")
    expect(row["verified"] > 0 and row["wrong"] == 0, f"{of}: {row['wrong']} of {row['verified']} are wrong")


def check_growth(rows):
    for name in STATISTICS[2:]:
        two, four, eight = (row[name]["p50"] for row in rows if row["name"] == "simulated")
        expect(0 < eight - four == 2 * (four - two), f"{name} of 2, 4 and 8 ranks: {two}, {four}, {eight}")


def check_timeout(tool):
    late = subprocess.run([tool, "-r", "512", "--real", "0", "--timeout-ms", "1"], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    expect(late.returncode == 1 and " 1 ms" in late.stderr, f"512 ranks in 1 ms: exit code {late.returncode}, {late.stderr}")


def main(tool):
    content = run(tool)
    rows = [(row["ranks"], row["name"]) for row in content["results"]]
    expect(rows == [(2, "real"), (2, "simulated"), (4, "real"), (4, "simulated"), (8, "simulated")], f"rows {rows}")
    for row in content["results"]:
        check_row(row)
    check_growth(content["results"])
    expect(content["tool"] == "init_perf" and content["options"]["ranks"] == [2, 4, 8], "tool or options")
    expect({"host", "commit"} <= set(content["environment"]) and content["start_time"] <= content["end_time"], "environment or time")
    check_timeout(tool)


if __name__ == "__main__":
    main(sys.argv[1])
