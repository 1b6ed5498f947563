# SPDX-License-Identifier: Apache-2.0
"""Tables and pictures of what the model computes."""
import os

from shapes import PAPER, TOKENS
from systems import CLASSES, IDEAL


def table(titles, rows):
    cells = [titles, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def print_check(rows):
    table(["figure", "what", "paper", "ours", "bound", "ok", "basis"],
          [[r["figure"], r["what"], r["paper"], r["ours"], r["bound"], "yes" if r["ok"] else "OUT", r["basis"]] for r in rows])


def print_modes(rows):
    names = [name for name in rows[0] if name not in ("model", "tokens")]
    table(["model", "tokens", *(f"{n} us" for n in names), "ideal / hardware"],
          [[r["model"], str(r["tokens"]), *(f"{r[n]:.0f}" for n in names), f"{r[IDEAL.name] / r['hardware hub']:.3f}"] for r in rows])


def print_projections(rows):
    names = list(rows[0]["us"])
    table(["network", "mode", "nodes", *(f"{n} us" for n in names), "software hub, by the network's errors", "errors"],
          [[r["nic"] + (" *" if r.get("at_line_rate") else ""), r["mode"], str(r["nodes"]), *(f"{r['us'][n]:.0f}" for n in names),
            f"{r['software_least_us']:.0f} to {r['software_most_us']:.0f}" if any(r["network_errors"]) else "",
            " to ".join(f"{e:+.0%}" for e in r["network_errors"]) if any(r["network_errors"]) else ""] for r in rows])
    print("* bandwidth fitted to the line rate or above: between the published numbers of nodes alone, no projection")


def lines(axes, series, ylabel, band=None):
    for name, values in series.items():
        axes.plot(TOKENS, values, marker="o", markersize=3, label=name)
    if band:
        axes.axhspan(*band, color="#b9bec4", alpha=0.4, label="the paper's range")
    axes.set_xscale("log", base=4)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("tokens per rank")
    axes.set_ylabel(ylabel)
    axes.grid(True, alpha=0.2)
    axes.legend(fontsize=6)


def draw(path, figures, projections):
    """Needs matplotlib."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "ucclep", "svg.fonttype": "none", "font.size": 8})
    figure, axes = plt.subplots(2, 2, figsize=(12, 8))
    of_classes, gains, of_ideal = figures.speedups(figures.paper_machine()), figures.gains(), figures.of_ideal(400)
    lines(axes[0][0], {s.name: figures.by_tokens(of_classes[s.name]) for s in CLASSES}, "F4: speed-up of the hub, mean of the models", (1.40, 3.08))
    lines(axes[0][1], {name: [of_ideal[name, t] for t in TOKENS] for name in PAPER}, "F5: ideal layer / layer with the hub", (0.95, 0.98))
    lines(axes[1][0], {name: figures.by_tokens(points) for name, points in gains.items()}, "F6: gain from routing to GEMM 1", (1.13, 1.14))
    draw_projections(axes[1][1], projections)
    figure.tight_layout()
    kind = os.path.splitext(path)[1]
    figure.savefig(path, dpi=120, metadata={"Date": None} if kind == ".svg" else None)


def draw_projections(axes, rows):
    for nic, mode in sorted({(r["nic"], r["mode"]) for r in rows if r["nodes"] > 1}):
        of = [r for r in rows if (r["nic"], r["mode"]) == (nic, mode)]
        nodes = [r["nodes"] for r in of]
        (curve,) = axes.plot(nodes, [r["us"]["software hub"] for r in of], marker="o", markersize=3, label=f"{nic} {mode}, software hub")
        axes.plot(nodes, [r["us"]["mediated"] for r in of], "--", color=curve.get_color(), label=f"{nic} {mode}, mediated")
        axes.fill_between(nodes, [r["software_least_us"] for r in of], [r["software_most_us"] for r in of], color=curve.get_color(), alpha=0.15)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("nodes of 8 GPUs; band: errors of the network's model")
    axes.set_ylabel("us of a DeepSeek-V3 layer")
    axes.legend(fontsize=6)
