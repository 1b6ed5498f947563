#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: transport_json_test.py TRANSPORT_PERF BARE_OFI

Runs transport_perf with lists, a baseline and -J, and looks for what readers of the JSON file count on. Then as operations of a file,
on two "machines", and on one that waits for nobody.
"""
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile


def expect(condition, message):
    if not condition:
        sys.exit(f"transport_json_test.py: {message}")


def run(tool, transport, *more):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        command = [tool, transport, "-b", "64,7168", "-W", "1,16", "-m", "50", "-n", "3", *more, "-J", path]
        subprocess.run(command, check=True, stdout=subprocess.PIPE)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def check_row(row, has_bare):
    name = f"{row['name']} of {row['bytes']} bytes"
    expect(len(row["value"]["samples"]) == 3, f"{name} has {len(row['value']['samples'])} samples")
    expect(row["value"]["min"] > 0 and row["gigabytes_per_second"] > 0, f"{name}: {row['value']}")
    expect(row["verified"] == 3 * 50 and row["wrong"] == 0, f"{name}: {row['wrong']} of {row['verified']} are wrong")
    expect(("ratio" in row) == ("bare" in row) == has_bare, f"{name}: a baseline, or none, against expectation")
    if has_bare:
        pairs = zip(row["value"]["samples"], row["bare"]["samples"])
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        expect(abs(row["ratio"] - ratio) < 1e-6 * ratio, f"{name}: ratio {row['ratio']} instead of {ratio}")


def check_both(tool):
    """50 messages of each side lie in 20 places."""
    for more in ((), ("--corrupt",)):
        command = [tool, "loopback", "-b", "1,100", "-W", "16", "-m", "50", "-n", "1", "--both", "--slots", "20", *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        wanted = "verified 300 messages, 0 wrong" if not more else "verified 300 messages, 6 wrong"
        expect((done.returncode == 0) == (not more) and wanted in done.stdout, f"{' '.join(command)}: {done.stdout}")
    few = subprocess.run([tool, "loopback", "-W", "16", "--slots", "15"], stderr=subprocess.PIPE, text=True, check=False)
    expect(few.returncode == 2 and "--slots 15" in few.stderr, f"fewer slots than the window has: {few.stderr}")


def check_pairs(tool):
    """Three pairs have verified three times as much, and a mistake in any of them is seen."""
    command = [tool, "loopback", "-b", "100", "-W", "16", "-m", "50", "-n", "1", "--pairs", "3"]
    for more, wanted in (((), "verified 300 messages, 0 wrong"), (("--corrupt",), "verified 300 messages, 6 wrong")):
        done = subprocess.run([*command, *more], stdout=subprocess.PIPE, text=True, check=False)
        expect((done.returncode == 0) == (not more) and wanted in done.stdout, f"{' '.join(command)}: {done.stdout}")
    for more, named in ((("--bare", tool), "--pairs"), (("--connect", "here:1"), "--pairs"), (("--cpus", "0,0"), "--cpus")):
        refused = subprocess.run([*command, *more], stderr=subprocess.PIPE, text=True, check=False)
        expect(refused.returncode == 2 and named in refused.stderr, f"{more}: {refused.stderr}")


def check_as(tool):
    """The ranks of each file sent 2000 bytes in 5 messages each."""
    for mode, ranks, allowed in (("ll", 2, lambda wire: 1.5 * wire + 25), ("ht", 4, lambda wire: wire / 0.8)):
        wire = {"bytes": 2000 * ranks, "messages": 5 * ranks}
        sent = {"name": "combine", "time": "host_us", "host_us": {"p50": 123.0}, "on_the_wire": wire}
        operations = {"options": {"mode": mode}, "ranks": ranks * [{}], "results": [{"tokens": 8, "series": [{"name": "update"}, sent]}]}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "operations.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(operations, file)
            result = run(tool, "loopback", "--as", path)
        rows = result["results"]
        expect(result["options"]["pairs"] == ranks // 2, f"{result['options']['pairs']} pairs for {ranks} ranks")
        expect(len(rows) == 1, f"{len(rows)} rows for one operation")
        row, operation = rows[0], rows[0]["operation"]
        expect([row[key] for key in ("name", "bytes", "messages", "slots", "both")] == ["write", 400, 5, 5, True], f"it was repeated as {row}")
        expect((operation["name"], operation["tokens"], operation["us"]) == ("combine", 8, 123.0), f"the operation: {operation}")
        wire = 5 / row["value"]["p50"] * 1e3
        expect(abs(operation["wire_us"] - wire) < 1e-6 * wire, f"{operation['wire_us']} us on the wire instead of {wire}")
        expect(abs(operation["allowed_us"] - allowed(wire)) < 1e-6 * wire, f"{mode}: {operation['allowed_us']} us are allowed")
    nothing = subprocess.run([tool, "loopback", "--as", "/dev/null"], stderr=subprocess.PIPE, text=True, check=False)
    expect(nothing.returncode == 2 and "/dev/null" in nothing.stderr, f"a file without operations: {nothing.stderr}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main(tool, bare):
    wanted = [("write", 1, 64), ("write", 1, 7168), ("write", 16, 64), ("write", 16, 7168), ("trip", 1, 64), ("trip", 1, 7168)]
    for transport, more in (("loopback", ()), ("ofi:tcp", ("--bare", bare))):
        result = run(tool, transport, *more)
        rows = [(row["name"], row["window"], row["bytes"]) for row in result["results"]]
        expect(rows == wanted, f"rows {rows}")
        expect(result["options"]["transport"] == transport, "the transport is not named")
        for row in result["results"]:
            check_row(row, bool(more))
    check_as(tool)
    check_both(tool)
    check_pairs(tool)
    port = str(free_port())
    options = ["loopback", "-b", "64", "-m", "100", "-n", "1"]
    with subprocess.Popen([tool, *options, "--listen", port]) as other:
        mine = subprocess.run([tool, *options, "--connect", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True, check=False)
        expect(mine.returncode == 0 and "0 wrong" in mine.stdout, f"--connect ended with {mine.returncode}: {mine.stdout}")
        expect(other.wait() == 0, "--listen did not end well")
    alone = subprocess.run([tool, *options, "--listen", port, "--timeout-ms", "5"], stderr=subprocess.PIPE, text=True, check=False)
    expect(alone.returncode == 1 and "no other side connected" in alone.stderr, f"--listen alone ended with {alone.returncode}: {alone.stderr}")


main(*sys.argv[1:])
