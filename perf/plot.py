#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: perf/plot.py [--out FOLDER] FILE...

Draws the JSON files of the perf tools as PNG and SVG, one picture for each operation and type: times over sizes, and at the size
that peers.json knows as bars beside the peers. Only results of the machine and the shape of peers.json stand beside them. Of init_perf
it draws times and bytes over the number of ranks. Needs matplotlib.
"""
import argparse
import collections
import json
import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

OURS, PEER, FLOOR = "#0b6fa4", "#b9bec4", "#c0392b"
# The series that a peer's number is like: routing known in HT, carried in LL.
OPERATIONS = {"ht": ("dispatch", "combine"), "ll": ("dispatch", "combine", "dispatch+combine")}

Key = collections.namedtuple("Key", "mode operation dtype")
Line = collections.namedtuple("Line", "label points")  # of one run; points: tokens -> statistics


def load_runs(paths):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        for run in content if isinstance(content, list) else [content]:
            if "tool" not in run or run["tool"] == "ceiling_perf":
                raise SystemExit(f"plot.py: {path} is no file of dispatch_perf, combine_perf or init_perf")
            yield os.path.basename(path), run


def is_comparable(run):
    """The machine and the shape that the peers were measured with."""
    options = run["options"]
    return (len(run["ranks"]) == 4 and all("H200" in rank["device"] for rank in run["ranks"])
            and (options["hidden"], options["experts"], options["topk"], options["skew"]) == (7168, 256, 8, 0))


def dtype_of(options, operation):
    if operation == "dispatch" and options["quant"]:
        return "fp8"
    return "bf16" if operation == "combine" and options["dtype"] == "fp8" else options["dtype"]


def label_of(options):
    sms = f"{options['sms']} SMs" if options["sms"] else "SMs: auto"
    return f"libucclep {options['layout']}, {sms}" + (", windows" if options.get("windows") else "") + (", graph" if options.get("graph") else "")


def collect(runs):
    """{(key, comparable): [Line]}"""
    lines = collections.defaultdict(list)
    for _, run in runs:
        options = run["options"]
        for operation in OPERATIONS[options["mode"]]:
            points = {}
            for result in run["results"]:
                for series in result["series"]:
                    if series["name"] == operation:
                        points[result["tokens"]] = series[series["time"]]
            if points:
                key = Key(options["mode"], operation, dtype_of(options, operation))
                lines[key, is_comparable(run)].append(Line(label_of(options), points))
    return lines


def matching(entries, key):
    return [e for e in entries if (e["mode"], e["operation"], e["dtype"]) == tuple(key)]


def draw_bars(axes, lines, peers, floors, tokens):
    bars = [(f"{p['system']}" + (f", {p['sms']} SMs" if p["sms"] else "") + f" ({p['time']})", p["us"], None, PEER) for p in peers]
    bars += [(line.label, line.points[tokens]["p50"], line.points[tokens]["p99"], OURS) for line in lines if tokens in line.points]
    bars.sort(key=lambda bar: -bar[1])
    names, values, highs, colours = zip(*bars)
    axes.barh(range(len(bars)), values, color=colours)
    for y, (value, high) in enumerate(zip(values, highs)):
        if high is not None:
            axes.plot([value, high], [y, y], color="black", linewidth=1)
        axes.text(max(value, high or 0), y, f" {value:.4g}", va="center", fontsize=7)
    for floor in floors:
        axes.axvline(floor["us"], color=FLOOR, linewidth=1, linestyle="--" if floor["what"] == "link" else "-",
                     label=f"{floor['what']}: {floor['us']:g} us")
    axes.set_yticks(range(len(bars)), names, fontsize=7)
    axes.set_xlim(0, max([*values, *(h for h in highs if h)]) * 1.12)
    axes.set_xlabel(f"us at {tokens} tokens per rank, median (thin line: to the 99th percentile)")
    if floors:
        axes.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncol=len(floors), frameon=False)


def draw_curves(axes, lines, peers):
    for line in lines:
        tokens = sorted(line.points)
        (curve,) = axes.plot(tokens, [line.points[t]["p50"] for t in tokens], marker="o", markersize=3, label=line.label)
        axes.fill_between(tokens, [line.points[t]["min"] for t in tokens], [line.points[t]["p99"] for t in tokens],
                          color=curve.get_color(), alpha=0.15)
    if peers:
        axes.scatter([p["tokens"] for p in peers], [p["us"] for p in peers], color=PEER, s=12, label="peers", zorder=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="both", which="both", labelsize=7)
    axes.set_xlabel("tokens per rank")
    axes.set_ylabel("us, median (band: min to p99)")
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize=7)


def draw(key, lines, known, comparable, out):
    peers = matching(known["peers"], key) if comparable else []
    floors = matching(known["floors"], key) if comparable else []
    reference = peers[0]["tokens"] if peers else max(max(line.points) for line in lines)
    curves = any(len(line.points) > 1 for line in lines)
    bars = any(reference in line.points for line in lines)
    count = len(peers) + len(lines)
    figure, axes = plt.subplots(1, curves + bars, figsize=(7 * (curves + bars), max(3, 1.2 + 0.24 * count)), squeeze=False)
    if curves:
        draw_curves(axes[0][0], lines, peers)
    if bars:
        draw_bars(axes[0][-1], lines, peers, floors, reference)
    where = known["machine"] if comparable else "machines and shapes without peers' numbers"
    figure.suptitle(f"{key.mode.upper()} {key.operation}, {key.dtype}\n{where}", fontsize=9)
    figure.tight_layout()
    name = f"{key.mode}-{key.operation}-{key.dtype}" + ("" if comparable else "-other")
    for kind in ("png", "svg"):
        # Without dates and random identifiers: the same results give the same files.
        figure.savefig(os.path.join(out, f"{name}.{kind}"), dpi=120, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)
    return name


INIT_TIMES = (("init_ms", "init", "#0b6fa4"), ("group_create_ms", "group", "#c0392b"))
INIT_BYTES = (("group_create_received_bytes", "received", "#0b6fa4"), ("group_create_sent_bytes", "sent", "#c0392b"))


def draw_against_ranks(axes, rows, series, unit):
    """Real ranks are lines, simulated ones dashed."""
    for field, label, colour in series:
        for name, style, marker in (("real", "-", "o"), ("simulated", "--", "s")):
            of_name = [row for row in rows if row["name"] == name]
            ranks = [row["ranks"] for row in of_name]
            axes.plot(ranks, [row[field]["p50"] for row in of_name], style, color=colour, marker=marker, markersize=3,
                      label=f"{label}, {name} ranks")
            axes.fill_between(ranks, [row[field]["min"] for row in of_name], [row[field]["max"] for row in of_name], color=colour, alpha=0.15)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("ranks")
    axes.set_ylabel(f"{unit}, median (band: min to max)")
    axes.grid(True, alpha=0.2)
    axes.legend(fontsize=7)


def draw_init(run, out):
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5))
    draw_against_ranks(axes[0], run["results"], INIT_TIMES, "ms, first call to last return")
    draw_against_ranks(axes[1], run["results"], INIT_BYTES, "bytes of a rank in a group's rounds")
    here = run["environment"]
    figure.suptitle(f"ucclEpCommInitRank and ucclEpGroupCreate, each rank a node\n{here['cores']} cores, commit {here['commit']}", fontsize=9)
    figure.tight_layout()
    for kind in ("png", "svg"):
        figure.savefig(os.path.join(out, f"init.{kind}"), dpi=120, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)
    return "init"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "..", "docs", "plots"))
    parser.add_argument("files", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    with open(os.path.join(here, "peers.json"), encoding="utf-8") as file:
        known = json.load(file)
    plt.rcParams.update({"svg.hashsalt": "ucclep", "svg.fonttype": "none", "font.size": 8})
    os.makedirs(arguments.out, exist_ok=True)
    runs = list(load_runs(arguments.files))
    for _, run in runs:
        if run["tool"] == "init_perf":
            print(draw_init(run, arguments.out))
    for (key, comparable), lines in sorted(collect(named for named in runs if named[1]["tool"] != "init_perf").items()):
        print(draw(key, lines, known, comparable, arguments.out))


if __name__ == "__main__":
    main()
