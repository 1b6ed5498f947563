#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bounds dispatch and combine across nodes, by T = alpha + messages x cost + bytes / B for the NIC of a GPU.

Without a choice all NICs and both modes. --check compares the formula with published times, of which a few were used to fit alpha,
cost and B (perf/published.py has the times and their sources). --memory prints what a rank's group takes, as ucclEpGroupQuery of
the library says (UCCLEP_LIBRARY, else the one of build/), and what crosses the network for it.
"""
import argparse
import collections
import json
import math
import os
import sys

from published import POINTS

LINE_RATE = 50e3  # bytes/us: 400 Gb/s for each GPU
KIB = 1024
NICS = {
    "cx7": "ConnectX-7, 400 Gb/s",
    "thor2": "Thor-2, 400 Gb/s",
    "efa-p5en": "EFA of p5en, 2 x 200 Gb/s a GPU",
    "efa-p5": "EFA of p5, 4 x 100 Gb/s a GPU",
}

Shape = collections.namedtuple("Shape", "tokens hidden experts topk ranks per_node")
Traffic = collections.namedtuple("Traffic", "messages bytes")  # of one rank across nodes
Constants = collections.namedtuple("Constants", "alpha cost bandwidth")  # us, us, bytes/us


# ---- What travels, with uniform routing ----

def reached(shape, group):
    """How likely a token is to choose at least one expert of `group` ranks."""
    others = shape.experts - shape.experts // shape.ranks * group
    return 1 - math.comb(others, shape.topk) / math.comb(shape.experts, shape.topk)


def copies_across(shape, copies):
    """Rows that leave the node for each token."""
    remote = shape.ranks - shape.per_node
    return {
        "selection": shape.topk * remote / shape.ranks,
        "batch": shape.topk * remote / shape.ranks,
        "rank": remote * reached(shape, 1),
        "node": remote // shape.per_node * reached(shape, shape.per_node),
    }[copies]


def row_bytes(shape, dtype):
    return shape.hidden + shape.hidden // 128 * 4 if dtype == "fp8" else 2 * shape.hidden


def meta_bytes(shape):
    """docs/protocol.md, meta line."""
    def round_up(value, to):
        return -(-value // to) * to
    return round_up(round_up(8 + 10 * shape.topk, 16) + 16, 64)


def our_traffic(shape, mode, operation, dtype, copies, chunk):
    """At most two messages for each rank that is written to, and one for each chunk. In LL a combine is not summed for a node:
    it returns one row for each rank. In HT a rank writes to the ranks of its rail."""
    back = operation == "combine"
    row = row_bytes(shape, "bf16" if back else dtype) + (0 if back else meta_bytes(shape))
    if mode == "ht":
        copies, peers = "node", shape.ranks // shape.per_node - 1
    else:
        copies, peers = ("rank" if back else copies), shape.ranks - shape.per_node
        if copies == "node":
            peers = shape.ranks // shape.per_node - 1
    volume = shape.tokens * copies_across(shape, copies) * row
    return Traffic(2 * peers + volume / chunk, volume)


def published_traffic(point):
    shape = shape_of(point)
    copies = copies_across(shape, point.copies)
    volume = shape.tokens * copies * row_bytes(shape, point.dtype)
    return Traffic(shape.tokens * copies if point.copies == "selection" else 0, volume)


def shape_of(point):
    return Shape(128 if point.mode == "ll" else 4096, 7168, 256, 8, point.ranks, 8)


def published_time(point):
    if point.us is not None:
        return point.us
    shape = shape_of(point)
    nodes = shape.ranks // shape.per_node * reached(shape, shape.per_node)
    return shape.tokens * nodes * row_bytes(shape, point.dtype) / (point.gigabytes * 1e3)


# ---- Constants: what is fitted to which points ----

def points_of(system, nic, mode, operations, ranks, dtype=None):
    return [p for p in POINTS if (p.system, p.nic, p.mode) == (system, nic, mode) and p.operation in operations and p.ranks in ranks and dtype in (None, p.dtype)]


def fit_line(points):
    """(alpha, B) by least squares, where messages are free; B at most the line rate."""
    xs, ys = [published_traffic(p).bytes for p in points], [published_time(p) for p in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)
    bandwidth = min(1 / slope, LINE_RATE)
    return y - x / bandwidth, bandwidth


def rest(point, alpha, bandwidth):
    return published_time(point) - alpha - published_traffic(point).bytes / bandwidth


def fit():
    """{(nic, mode): Constants}, and the points that were used."""
    used = {
        # GPUs post: what a message costs is left out.
        "cx7 ll": points_of("DeepEP V1", "cx7", "ll", ["dispatch"], [16, 256]),
        # CPU threads post a message a row: what exceeds the line above is the cost of messages.
        "cx7 cost": points_of("UCCL-EP", "cx7", "ll", ["dispatch"], [32]),
        # In large chunks: messages are left out.
        "cx7 ht": points_of("UCCL-EP", "cx7", "ht", ["dispatch"], [16, 64], "fp8"),
        # CPU threads, rows packed: messages are left out.
        "efa ll": points_of("pplx", "efa-p5en", "ll", ["dispatch", "combine"], [16, 64]),
        "efa cost": points_of("UCCL-EP", "efa-p5en", "ll", ["dispatch"], [32]),
        "efa ht": points_of("UCCL-EP", "efa-p5en", "ht", ["dispatch"], [32]),
    }

    def cost(points, alpha, bandwidth):
        return rest(points[0], alpha, bandwidth) / published_traffic(points[0]).messages

    cx7, efa = fit_line(used["cx7 ll"]), fit_line(used["efa ll"])
    cx7_ht = fit_line(used["cx7 ht"])
    efa_ht = rest(used["efa ht"][0], 0, cx7_ht[1]), cx7_ht[1]  # one point gives alpha only
    cx7_cost, efa_cost = cost(used["cx7 cost"], *cx7), cost(used["efa cost"], *efa)
    constants = {
        ("cx7", "ll"): Constants(cx7[0], cx7_cost, cx7[1]),
        ("cx7", "ht"): Constants(cx7_ht[0], cx7_cost, cx7_ht[1]),
        ("efa-p5en", "ll"): Constants(efa[0], efa_cost, efa[1]),
        ("efa-p5en", "ht"): Constants(efa_ht[0], efa_cost, efa_ht[1]),
    }
    for mode in ("ll", "ht"):  # nothing is fitted to these
        constants["thor2", mode] = constants["cx7", mode]
        constants["efa-p5", mode] = constants["efa-p5en", mode]
    return constants, [p for points in used.values() for p in points]


# The cost of a message is that of CPU threads; of these it costs the GPU next to nothing.
POSTED_BY_GPU = ("DeepEP V1", "NCCL EP")


def time_of(constants, traffic):
    return constants.alpha + traffic.messages * constants.cost + traffic.bytes / constants.bandwidth


def check_rows(constants, used):
    for point in POINTS:
        traffic = published_traffic(point)
        if point.system in POSTED_BY_GPU:
            traffic = traffic._replace(messages=0)
        predicted, measured = time_of(constants[point.nic, point.mode], traffic), published_time(point)
        yield {"nic": point.nic, "mode": point.mode, "system": point.system, "operation": point.operation, "dtype": point.dtype, "ranks": point.ranks,
               "published_us": measured, "model_us": predicted, "error": predicted / measured - 1, "fitted": point in used}


def errors_of(rows):
    """Of what was not fitted, by NIC, mode and library."""
    groups = collections.defaultdict(list)
    for row in rows:
        if not row["fitted"]:
            groups[row["nic"], row["mode"], row["system"]].append(row["error"])
    return [{"nic": nic, "mode": mode, "system": system, "points": len(e), "mean_error": sum(map(abs, e)) / len(e), "worst_error": max(e, key=abs)}
            for (nic, mode, system), e in groups.items()]


# ---- Predictions ----

def ring_trip():
    """us from a lane to a thread and back, by fifo_perf on an H200."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "h200-fifo.json")
    with open(path, encoding="utf-8") as file:
        return next(r["value"]["p50"] for r in json.load(file)["results"] if r["name"] == "trip")


def predictions(args, constants):
    ring = ring_trip()
    for nic in args.nic:
        for mode in args.mode:
            tokens = args.tokens or (128 if mode == "ll" else 4096)
            chunk = (args.chunk_kib or (32 if mode == "ll" else 256)) * KIB
            for ranks in args.ranks:
                shape = Shape(tokens, args.hidden, args.experts, args.topk, ranks, args.ranks_per_node)
                for operation in ("dispatch", "combine"):
                    traffic = our_traffic(shape, mode, operation, args.dtype, args.copies, chunk)
                    c = constants[nic, mode]
                    terms = {"alpha": c.alpha + ring, "messages": traffic.messages * c.cost, "bytes": traffic.bytes / c.bandwidth}
                    yield {"nic": nic, "mode": mode, "operation": operation, "ranks": ranks, "tokens": tokens, "messages": traffic.messages,
                           "bytes": traffic.bytes, "alpha_us": terms["alpha"], "messages_us": terms["messages"], "bytes_us": terms["bytes"],
                           "us": sum(terms.values()), "floor_us": traffic.bytes / LINE_RATE, "bound": max(terms, key=terms.get)}


# ---- Memory ----

MIB = 1 << 20
REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def group_limits():
    """ucclEpGroupQuery, by the Python package."""
    sys.path.insert(0, os.path.join(REPOSITORY, "bindings/python"))
    os.environ.setdefault("UCCLEP_LIBRARY", os.path.join(REPOSITORY, "build/src/libucclep.so.0"))
    try:
        from ucclep.group import limits
    except ImportError as error:
        sys.exit(f"model.py: {error}: run make, or name the library in UCCLEP_LIBRARY")
    return limits


def memory_rows(args):
    """A rank has an expert at least. In HT a rank sends to the relays of its rail, and each round has a header for each of these."""
    limits = group_limits()
    for mode in args.mode:
        tokens = args.tokens or (128 if mode == "ll" else 4096)
        for ranks in args.ranks:
            shape = Shape(tokens, args.hidden, max(args.experts, ranks), args.topk, ranks, args.ranks_per_node)
            os.environ["UCCLEP_NODES"] = ",".join([str(shape.per_node)] * (ranks // shape.per_node))
            facts = {"mode": mode, "ranks": ranks, "tokens": tokens, "experts": shape.experts}
            try:
                group = limits(None, nranks=ranks, num_experts=shape.experts, top_k=shape.topk, max_token_bytes=2 * shape.hidden,
                               max_tokens_per_rank=tokens if mode == "ht" else 1, ll_max_tokens_per_rank=tokens if mode == "ll" else 1,
                               window_bytes=args.window_mib * MIB if mode == "ht" else 0)
            except RuntimeError as error:  # the library's
                yield facts | {"refused": str(error)}
                continue
            round_tokens = group["tokens_per_round"] if mode == "ht" else tokens
            rounds = -(-tokens // round_tokens)
            for operation in ("dispatch", "combine"):
                chunk = (args.chunk_kib or (32 if mode == "ll" else 256)) * KIB
                traffic = our_traffic(shape._replace(tokens=min(tokens, round_tokens)), mode, operation, args.dtype, args.copies, chunk)
                yield facts | {"operation": operation, "bytes": group["device_bytes"] + group["host_bytes"],
                               "tokens_per_round": round_tokens, "rounds": rounds, "messages": rounds * traffic.messages}


# ---- The command line ----

def numbers(text):
    values = [int(v) for v in text.split(",")]
    if min(values) < 1:
        raise ValueError
    return values


def parse(arguments):
    parser = argparse.ArgumentParser(prog="model.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nic", choices=NICS, action="append", help="a NIC, several times for several: " + "; ".join(f"{k}: {v}" for k, v in NICS.items()))
    parser.add_argument("--mode", choices=("ll", "ht"), action="append")
    parser.add_argument("--ranks", type=numbers, metavar="N[,N...]", help="default 16,32,64")
    parser.add_argument("--ranks-per-node", type=int, default=8, metavar="N", help="default 8")
    parser.add_argument("--tokens", type=int, metavar="N", help="of a rank, default 128 in LL, 4096 in HT")
    parser.add_argument("--hidden", type=int, default=7168, metavar="N", help="elements of a token, default 7168")
    parser.add_argument("--experts", type=int, default=256, metavar="N", help="default 256")
    parser.add_argument("--topk", type=int, default=8, metavar="N", help="experts of a token, default 8")
    parser.add_argument("--dtype", choices=("bf16", "fp8"), default="bf16", help="of dispatch; fp8 has a scale for 128 elements")
    parser.add_argument("--copies", choices=("rank", "node"), default="rank", help="of a row in LL dispatch: one for each rank, or for each node")
    parser.add_argument("--chunk-kib", type=int, metavar="N", help="largest message, default 32 in LL, 256 in HT")
    parser.add_argument("--memory", action="store_true", help="memory and messages of a rank; default ranks 64,256,1024,4096")
    parser.add_argument("--window-mib", type=int, default=0, metavar="N", help="with --memory: window_bytes of HT in MiB (0: the library's choice)")
    parser.add_argument("--check", action="store_true", help="the model beside published times")
    parser.add_argument("--json", action="store_true", help="JSON, not a table")
    args = parser.parse_args(arguments)
    args.nic, args.mode = args.nic or list(NICS), args.mode or ["ll", "ht"]
    args.ranks = args.ranks or ([64, 256, 1024, 4096] if args.memory else [16, 32, 64])
    for name in ("ranks_per_node", "tokens", "hidden", "experts", "topk", "chunk_kib"):
        value = getattr(args, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} {value}: expected at least 1")
    if args.topk > args.experts:
        parser.error(f"--topk {args.topk}: there are {args.experts} experts")
    for ranks in args.ranks:
        if ranks % args.ranks_per_node or ranks <= args.ranks_per_node:
            parser.error(f"--ranks {ranks}: expected at least two nodes of {args.ranks_per_node} ranks")
        if args.experts % ranks and not (args.memory and ranks > args.experts):
            parser.error(f"--ranks {ranks}: {args.experts} experts are not a multiple of the ranks")
    return args


def table(titles, rows):
    cells = [titles, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
    for row in cells:
        print("  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def print_constants(constants):
    table(["nic", "mode", "alpha us", "us/message", "GB/s"],
          [[nic, mode, f"{c.alpha:.0f}", f"{c.cost:.3f}", f"{c.bandwidth / 1e3:.1f}"] for (nic, mode), c in constants.items()])
    print()


def main(arguments):
    args = parse(arguments)
    if args.memory:
        rows = list(memory_rows(args))
        if args.json:
            print(json.dumps({"memory": rows}, indent=1))
        else:
            table(["mode", "operation", "ranks", "tokens", "experts", "MiB", "tokens a round", "rounds", "messages"],
                  [[r["mode"], r["operation"], str(r["ranks"]), str(r["tokens"]), str(r["experts"]), f"{r['bytes'] / MIB:.0f}",
                    str(r["tokens_per_round"]), str(r["rounds"]), f"{r['messages']:.0f}"] for r in rows if "refused" not in r])
            for row in rows:
                if "refused" in row:
                    print(f"{row['mode']}, {row['ranks']} ranks: {row['refused']}")
        return
    constants, used = fit()
    result = {"line_rate_gigabytes": LINE_RATE / 1e3, "ring_trip_us": ring_trip(),
              "constants": [{"nic": nic, "mode": mode, **c._asdict()} for (nic, mode), c in constants.items()]}
    if args.check:
        rows = [r for r in check_rows(constants, used) if r["nic"] in args.nic and r["mode"] in args.mode]
        result |= {"points": rows, "errors": errors_of(rows)}
    else:
        result["predictions"] = list(predictions(args, constants))
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print_constants(constants)
    if args.check:
        table(["nic", "mode", "library", "operation", "type", "ranks", "published us", "model us", "error"],
              [[r["nic"], r["mode"], r["system"], r["operation"], r["dtype"], str(r["ranks"]), f"{r['published_us']:.0f}", f"{r['model_us']:.0f}",
                "fitted" if r["fitted"] else f"{r['error']:+.0%}"] for r in result["points"]])
        print()
        table(["nic", "mode", "library", "not fitted", "mean error", "worst"],
              [[e["nic"], e["mode"], e["system"], str(e["points"]), f"{e['mean_error']:.0%}", f"{e['worst_error']:+.0%}"] for e in result["errors"]])
    else:
        table(["nic", "mode", "operation", "ranks", "messages", "MB", "alpha us", "messages us", "bytes us", "us", "floor us", "bound by"],
              [[p["nic"], p["mode"], p["operation"], str(p["ranks"]), f"{p['messages']:.0f}", f"{p['bytes'] / 1e6:.1f}", f"{p['alpha_us']:.0f}",
                f"{p['messages_us']:.0f}", f"{p['bytes_us']:.0f}", f"{p['us']:.0f}", f"{p['floor_us']:.0f}", p["bound"]] for p in result["predictions"]])


if __name__ == "__main__":
    main(sys.argv[1:])
