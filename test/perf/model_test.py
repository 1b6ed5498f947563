#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: model_test.py MODEL_PY TUNING_MD

The calculator by what can be counted, by what its formula promises, and by what the documentation says of it.
"""
import itertools
import json
import os
import re
import subprocess
import sys


def expect(condition, message):
    if not condition:
        sys.exit(f"model_test.py: {message}")


def run(model, *arguments):
    return subprocess.run([sys.executable, "-B", model, *arguments], check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(model, *arguments):
    done = run(model, *arguments, "--json")
    expect(done.returncode == 0, f"{arguments}: {done.stderr}")
    return json.loads(done.stdout)


def check_counts(module):
    """Copies of a row, against all ways to choose 3 of 8 experts on 4 ranks of 2 nodes. The row's rank is on node 0."""
    shape = module.Shape(1, 128, 8, 3, 4, 2)
    choices = list(itertools.combinations(range(8), 3))
    ways = {
        "selection": lambda experts: sum(e // 2 >= 2 for e in experts),
        "rank": lambda experts: len({e // 2 for e in experts if e // 2 >= 2}),
        "node": lambda experts: len({e // 4 for e in experts if e // 4 >= 1}),
    }
    for copies, count in ways.items():
        mean = sum(map(count, choices)) / len(choices)
        expect(abs(module.copies_across(shape, copies) - mean) < 1e-9, f"{copies}: {module.copies_across(shape, copies)} copies, counted {mean}")
    expect(module.meta_bytes(shape._replace(topk=8)) == 128, "a meta line of 8 selections has 128 bytes")


def check_predictions(model):
    rows = answer(model, "--ranks", "16,64")["predictions"]
    expect(len(rows) == 4 * 2 * 2 * 2, f"{len(rows)} predictions")
    for row in rows:
        expect(abs(row["alpha_us"] + row["messages_us"] + row["bytes_us"] - row["us"]) < 1e-6, f"the terms are not the sum: {row}")
        expect(row["us"] > row["floor_us"] and row[row["bound"] + "_us"] == max(row[t + "_us"] for t in ("alpha", "messages", "bytes")), f"{row}")
        if row["mode"] == "ll":
            expect(row["messages"] <= 2 * (row["ranks"] - 8) + row["bytes"] / 32768 + 1e-6, f"more messages than there may be: {row}")
    by_node = answer(model, "--nic", "cx7", "--mode", "ll", "--ranks", "32", "--copies", "node")["predictions"]
    by_rank = answer(model, "--nic", "cx7", "--mode", "ll", "--ranks", "32")["predictions"]
    expect(by_node[0]["bytes"] < by_rank[0]["bytes"] and by_node[1]["bytes"] == by_rank[1]["bytes"], "only dispatch has fewer rows with a copy a node")


def check_memory(model):
    """What a group takes is the library's to say, which may not be built."""
    os.environ["UCCLEP_DEVICE"] = "host"
    rows = answer(model, "--memory", "--ranks", "16,64,4096", "--tokens", "512", "--window-mib", "512")["memory"]
    expect([r["ranks"] for r in rows] == 2 * [16, 16, 64, 64, 4096], f"{rows}")
    expect(all(("refused" in r) == (r["ranks"] == 4096) for r in rows), f"{rows}")
    ht = [r for r in rows if r["mode"] == "ht" and "refused" not in r]
    expect(all(r["rounds"] == -(-512 // r["tokens_per_round"]) and 0 < r["bytes"] < 600 << 20 for r in ht), f"{ht}")
    expect(ht[0]["rounds"] < ht[2]["rounds"] and ht[0]["messages"] < ht[2]["messages"], f"{ht}")


def check_errors(result):
    for constants in result["constants"]:
        expect(constants["alpha"] > 0 and constants["cost"] > 0 and 0 < constants["bandwidth"] <= 50e3, f"not of this world: {constants}")
    fitted = [p for p in result["points"] if p["fitted"]]
    expect(len(fitted) == 11 and len(result["points"]) > 60, f"{len(fitted)} of {len(result['points'])} points are fitted")
    expect(not any(p["fitted"] for p in result["points"] if p["nic"] in ("thor2", "efa-p5")), "a NIC that nothing is fitted to")
    for entry in result["errors"]:
        if entry["nic"] == "cx7" and entry["system"] != "UCCL-EP":
            expect(abs(entry["worst_error"]) < 0.12, f"{entry}")


def check_documentation(path, predicted, errors):
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    said = [m.groups() for m in map(re.compile(r"\| (\S+) \| (ll|ht) \| (dispatch|combine) \| (\d+) \| (\d+) us \| (\d+) us \| (\w+) \|$").match, lines) if m]
    true = {(p["nic"], p["mode"], p["operation"], str(p["ranks"]), f"{p['us']:.0f}", f"{p['floor_us']:.0f}", p["bound"]) for p in predicted}
    expect(said and set(said) <= true, f"{path} says what the calculator does not: {set(said) - true}")
    said = [m.groups() for m in map(re.compile(r"\| (\S+) \| (ll|ht) \| ([^|]+) \| (\d+) \| (\d+%) \| (\S+%) \|$").match, lines) if m]
    true = {(e["nic"], e["mode"], e["system"], str(e["points"]), f"{e['mean_error']:.0%}", f"{e['worst_error']:+.0%}") for e in errors}
    expect(set(said) == true, f"{path} states other errors: {set(said) ^ true}")


def main(model, tuning):
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(os.path.abspath(model)))
    import model as module  # noqa: E402
    check_counts(module)
    check_predictions(model)
    check_memory(model)
    checked = answer(model, "--check")
    check_errors(checked)
    check_documentation(tuning, answer(model)["predictions"], checked["errors"])
    for arguments, word in {("--ranks", "8"): "two nodes", ("--ranks", "12"): "two nodes", ("--ranks", "x"): "--ranks", ("--experts", "100"): "multiple",
                            ("--topk", "300"): "experts", ("--tokens", "0"): "at least 1", ("--nic", "none"): "choose"}.items():
        refused = run(model, *arguments)
        expect(refused.returncode == 2 and word in refused.stderr, f"{arguments} was answered with {refused.returncode}: {refused.stderr}")
    for arguments, word in {("--help",): "--check", (): "bound by", ("--check",): "mean error"}.items():
        text = run(model, *arguments)
        expect(text.returncode == 0 and word in text.stdout, f"{arguments}: {text.stdout}{text.stderr}")


if __name__ == "__main__":
    main(*sys.argv[1:])
