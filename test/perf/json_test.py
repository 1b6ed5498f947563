#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: json_test.py TOOL ARGUMENT...

Runs a perf tool with -J and looks for what readers of the JSON file and of the table count on.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SERIES = {
    ("dispatch_perf", "ll"): ["dispatch"],
    ("dispatch_perf", "ht"): ["update", "dispatch", "update+dispatch"],
    ("combine_perf", "ll"): ["dispatch+combine", "combine"],
    ("combine_perf", "ht"): ["update+dispatch+combine", "combine"],
    ("device_perf", "ll"): ["library calls", "counted warp 2x128", "bare 2x128"],
    ("device_perf", "ht"): ["library calls", "counted warp 2x128"],
}


def expect(condition, message):
    if not condition:
        sys.exit(f"json_test.py: {message}")


def check_wire(name, wire):
    """Of nodes that are virtual: rows cross with a header and little else, in few messages."""
    for figure in ("bytes", "messages", "commands", "must_cross_bytes", "must_cross_rows", "messages_allowed"):
        expect(wire[figure] > 0, f"{name}: {figure} on the wire are {wire[figure]}")
    expect(wire["must_cross_bytes"] < wire["bytes"] < 1.5 * wire["must_cross_bytes"], f"{name}: {wire}")
    expect(wire["messages"] <= wire["messages_allowed"], f"{name}: {wire}")


def check_series(series, iterations, nodes):
    name = series["name"]
    expect(("on_the_wire" in series) == (nodes > 1), f"{name}: {nodes} nodes, wire: {series.get('on_the_wire')}")
    if nodes > 1:
        check_wire(name, series["on_the_wire"])
    for clock in ("host_us", "device_us"):
        times = series[clock]
        expect(len(times["samples"]) == iterations, f"{name} has {len(times['samples'])} samples of {clock}")
        ordered = sorted(times["samples"])
        expect(times["min"] == ordered[0] > 0 and times["max"] == ordered[-1], f"{name}: min or max of {clock} is no extreme")
        expect(times["min"] <= times["p50"] <= times["p99"] <= times["max"], f"{name}: percentiles of {clock} are out of order")
    expect(series["verified"] > 0 and series["wrong"] == 0, f"{name}: {series['wrong']} of {series['verified']} are wrong")
    # An update moves no rows.
    expect(("bandwidth_gb_s" in series) == (name != "update"), f"{name}: bandwidths {series.get('bandwidth_gb_s')}")


def check_rounds(run, all_series):
    """Times are those of a round, and related to the library's."""
    library = all_series[0]["host_us"]["p50"]
    for series in all_series:
        name, time = series["name"], series["host_us"]["p50"]
        expect(series["rounds"] == run["options"]["rounds"] > 1, f"{name} has {series['rounds']} rounds")
        expect(abs(series["ratio_to_library"] - time / library) < 1e-9, f"{name}: a ratio of {series['ratio_to_library']}")


def check_table(lines, tokens, wanted):
    """A line for each operation, that fits a terminal."""
    rows = [line for line in lines if line.startswith("  ")]
    titles = next(line for line in lines if line.split()[:2] == ["#", "tokens"])
    begin, end = titles.index("operation"), titles.index("time p50")
    names = [(row.split()[0], re.sub(r" [ \d.]*$", "", row[begin:end])) for row in rows]
    expect(names == [(str(tokens), name) for name in wanted], f"the table has {rows}")
    for line in [titles, *rows]:
        expect(len(line) <= 120, f"a line of {len(line)} columns: {line}")
        expect(len(line) == len(titles), f"titles and figures do not stand below each other: {line}")


def main(command):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        table = subprocess.run([*command, "-J", path], check=True, stdout=subprocess.PIPE, text=True).stdout
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
    options = run["options"]
    wanted = SERIES[run["tool"], options["mode"]]
    (row,) = run["results"]
    expect([series["name"] for series in row["series"]] == wanted, f"the series are not {wanted}")
    for series in row["series"]:
        check_series(series, options["iterations"], options["nodes"])
        expect(series["time"] == ("device_us" if options["time"] == "events" else "host_us"), "the wrong clock counts")
    if run["tool"] == "device_perf":
        check_rounds(run, row["series"])
    expect(run["aligned_by_untimed_operation"] == (options["time"] == "events"), "aligned_by_untimed_operation is wrong")
    expect(f" sms {options['sms'] or 'auto'}\n" in table, "the table's header does not name the SMs")
    check_table(table.splitlines(), row["tokens"], wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
