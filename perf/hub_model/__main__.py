#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: python3 perf/hub_model [--check | --projection] [--json] [--plot FILE]

An event-driven model of a MoE layer in four modes: mediated (counts first, then all rows, then GEMMs), software hub, hardware hub
(seed MoE-Hub, arXiv 2605.05888) and ideal (the same GEMMs, no transfers). Without a choice it prints layers on the machine that the paper simulates.

Rows are simulated in batches of at most 128, some 256 a rank; routing is drawn from fixed seeds, so a run repeats bit for bit.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import figures  # noqa: E402
import mirror  # noqa: E402
import report  # noqa: E402


def parse(arguments):
    parser = argparse.ArgumentParser(prog="hub_model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="the paper's figures and our measurements beside the model's; status 1 if one is out of its bound")
    what.add_argument("--projection", action="store_true", help="a DeepSeek-V3 layer on 16 to 128 nodes of 8 H200, by the networks of perf/model.py")
    what.add_argument("--sensitivity", action="store_true", help="means of F5 and F6 with other assumptions")
    parser.add_argument("--json", action="store_true", help="JSON, not a table; with --check also the other tables")
    parser.add_argument("--plot", metavar="FILE", help="a picture, .png or .svg (needs matplotlib)")
    args = parser.parse_args(arguments)
    if args.plot and os.path.splitext(args.plot)[1] not in (".png", ".svg"):
        parser.error(f"--plot {args.plot}: the name has to end with .png or .svg")
    return args


def print_tables(args, rows):
    if args.check:
        report.print_check(rows)
    elif args.projection:
        report.print_projections(list(mirror.projections()))
    elif args.sensitivity:
        report.table(["mean", "ours"], [[name, f"{value:.3f}"] for name, value in figures.sensitivity().items()])
    else:
        report.print_modes(figures.modes())


def parts(args, rows):
    """What JSON has; all of it with --check."""
    result = {"check": rows} if args.check else {}
    if args.check or args.projection:
        result["projections"] = list(mirror.projections())
    if args.check or args.sensitivity:
        result["sensitivity"] = figures.sensitivity()
    if args.check or not result:
        result["modes"] = figures.modes()
    return result


def main(arguments):
    args = parse(arguments)
    rows = list(figures.check_rows()) if args.check else []
    if args.json:
        print(json.dumps(parts(args, rows), indent=1))
    else:
        print_tables(args, rows)
    if args.plot:
        try:
            report.draw(args.plot, figures, list(mirror.projections()))
        except ImportError:
            sys.exit("hub_model: --plot needs matplotlib (tools/deps.sh plot)")
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
