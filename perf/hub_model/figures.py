# SPDX-License-Identifier: Apache-2.0
"""The paper's figures as far as its text has numbers, and what we measured, from runs of the model."""
import functools
import statistics

import calibration
from calibration import paper_machine, real_h800
from events import Clock
from layer import run_layer
from pool import Gemm, Pool
from shapes import MODELS, PAPER, TILE_ROWS, TOKENS, Model, draw_routing
from systems import CLASSES, HARDWARE, IDEAL, MEDIATED, POLL_US, SEQUENTIAL, SOFTWARE, TILES, ablation
from tiles import Tile

DEVIATIONS = (0, 0.01, 0.02, 0.032, 0.05)
SLACK = 0.01  # of what has to rise or fall: the routing is drawn


@functools.lru_cache(maxsize=None)
def times(system, name, tokens, machine, ranks=8, deviation=0, seed=1):
    model = MODELS[name]
    return run_layer(system, model, machine, draw_routing(model, tokens, ranks, deviation, seed))


def each(machine, of, names=PAPER):
    """{(model, tokens): of(system -> Times)}"""
    return {(n, t): of(lambda system, n=n, t=t: times(system, n, t, machine)) for n in names for t in TOKENS}


def row(figure, what, paper, ours, bound, ok, basis="predicted"):
    return {"figure": figure, "what": what, "paper": paper, "ours": ours, "bound": bound, "ok": bool(ok), "basis": basis}


def between(figure, what, paper, ours, low, high, basis="predicted"):
    return row(figure, what, paper, f"{ours:.3f}", f"{low:g} to {high:g}", low <= ours <= high, basis)


def rises(values):
    return all(b >= a * (1 - SLACK) for a, b in zip(values, values[1:]))


# ---- What we measured ----

def gemm_us(gpu, model, rows, width, depth):
    """A grouped GEMM of `rows` rows for each expert."""
    clock = Clock()
    pool = Pool(clock, gpu, [Gemm(gpu, width, depth)], gpu.sms, lambda tile, gemm: None)
    for expert in range(model.experts):
        for first in range(0, rows, TILE_ROWS):
            tile = Tile(expert, 0)
            tile.rows = min(TILE_ROWS, rows - first)
            clock.at(0, pool.submit, tile, 0)
    clock.run()
    return clock.now


def our_gemms():
    points = [(m, rows, width, gemm_us(calibration.h200(), m, rows, width, depth) / us - 1)
              for m, rows, width, depth, us in calibration.measured_gemms()]
    fitted = {("Qwen3-30B", 256), ("Qwen3-30B", 16)}
    errors = [abs(e) for m, rows, _, e in points if (m.name, rows) not in fitted]
    return [row("ours", f"{len(errors)} GEMMs on H200, mean error", "measured", f"{statistics.mean(errors):.3f}", "at most 0.1",
                statistics.mean(errors) <= 0.1, "block_us, flops and memory fitted to 3 others")]


def our_operations():
    """A row for each (token, rank), as the library sends them: each rank stands for an expert."""
    reach, tokens, ranks = calibration.network.reached(calibration.network.Shape(4096, 7168, 256, 8, 4, 1), 1), 4096, 4
    model = Model("rows of HT", 7168, 64, ranks, 1)
    us = run_layer(MEDIATED._replace(before=0), model, calibration.our_machine(), [[round(tokens * reach)] * ranks] * ranks).dispatch
    for operation, measured in calibration.measured_operations().items():
        yield row("ours", f"HT {operation}, 4 H200, 4096 tokens: model / measured", f"{measured:.1f} us", f"{us / measured:.3f}",
                  "0.9 to 1.1", 0.9 <= us / measured <= 1.1, "bandwidth and latency measured by ceiling_perf")


# ---- The paper's ----

def exposed():
    """F2. The part of a layer of Mixtral that the ideal one does not have, mean of the systems that overlap."""
    shares = each(real_h800(), lambda t: [1 - t(IDEAL).layer / t(s).layer for s in CLASSES if s is not SEQUENTIAL], ["Mixtral"])
    mean = statistics.mean(v for values in shares.values() for v in values)
    return [between("F2", "share of mediation and exposed transfers, Mixtral, 8x H800", "over 0.24", mean, 0.20, 0.35)]


def speedups(machine):
    """{class: {(model, tokens): the hub's speed-up}}"""
    return {s.name: each(machine, lambda t, s=s: t(s).layer / t(HARDWARE).layer) for s in CLASSES}


def classes():
    """F4"""
    of = speedups(paper_machine())
    values = [v for points in of.values() for v in points.values()]
    yield row("F4", "speed-up of the hub over each class", "1.40 to 3.08", f"{min(values):.2f} to {max(values):.2f}", "contains the paper's",
              min(values) <= 1.40 and max(values) >= 3.08)
    for name, points in of.items():
        yield row("F4", f"  mean over {name}", "-", f"{statistics.mean(points.values()):.2f}", "above 1", statistics.mean(points.values()) > 1)


def of_ideal(gigabytes):
    return each(paper_machine(gigabytes), lambda t: t(IDEAL).layer / t(HARDWARE).layer)


def ideal():
    """F5"""
    return [between("F5", "ideal layer / layer with the hub, mean", "0.968", statistics.mean(of_ideal(400).values()), 0.95, 0.98)]


def gains(gigabytes=400, poll_us=POLL_US):
    """{"MH-PKT": {(model, tokens): gain in the window from routing to GEMM 1}, ..}"""
    systems = ablation(poll_us)
    base = systems.pop("MH-Base")
    return {name: each(paper_machine(gigabytes), lambda t, s=s: t(base).window / t(s).window) for name, s in systems.items()}


def by_tokens(points):
    return [statistics.mean(v for (_, t), v in points.items() if t == tokens) for tokens in TOKENS]


def by_model(points):
    return {name: statistics.mean(v for (n, _), v in points.items() if n == name) for name in PAPER}


def parts():
    """F6"""
    of = gains()
    rpm, dam = of["MH-PKT"], of["MH-DEP"]
    yield between("F6", "gain of RPM, mean", "1.13", statistics.mean(rpm.values()), 1.08, 1.18, "model revised once, see docs/hub.md")
    yield between("F6", "gain of DAM, mean", "1.14", statistics.mean(dam.values()), 1.09, 1.19, f"POLL_US = {POLL_US:g} fitted to this mean")
    least = min(v for points in of.values() for v in points.values())
    yield row("F6", "least gain of a part, or of both", "above 1", f"{least:.3f}", "at least 1", least >= 1)
    rising, falling = by_tokens(rpm), by_tokens(dam)
    yield row("F6", "RPM grows with the number of tokens", "yes", " ".join(f"{v:.2f}" for v in rising), f"rises, slack {SLACK:g}", rises(rising))
    yield row("F6", "DAM is most at few tokens", "yes", " ".join(f"{v:.2f}" for v in falling), f"falls, slack {SLACK:g}", rises(falling[::-1]))
    models = by_model(rpm)
    most = max(models, key=models.get)
    yield row("F6", "RPM is most for", "Qwen2-MoE", most, "the same", most == "Qwen2-MoE")


def imbalance(system, name, deviation):
    """us of a layer of 1024 tokens, mean of draws."""
    return statistics.mean(times(system, name, 1024, paper_machine(), 8, deviation, seed).layer for seed in (1, 2, 3))


def deviations():
    """F8. The paper's text has no number: time rises with the imbalance, and the hub stays ahead."""
    for name in ("Mixtral", "Qwen2-MoE"):
        us = {s.name: [imbalance(s, name, d) for d in DEVIATIONS] for s in (HARDWARE, SEQUENTIAL, TILES)}
        hub = us[HARDWARE.name]
        yield row("F8", f"{name}: time of the hub at std 0.05 / 0", "rises", f"{hub[-1] / hub[0]:.2f}", f"rises, slack {SLACK:g}", rises(hub))
        least = min(other / mine for others in us.values() if others is not hub for other, mine in zip(others, hub))
        yield row("F8", f"{name}: least speed-up of the hub, std 0 to 0.05", "above 1", f"{least:.2f}", "above 1", least > 1)


def faster(machine, factor):
    gpu = machine.gpu
    return machine._replace(name=f"{machine.name}, GPU x{factor}", gpu=gpu._replace(flops=gpu.flops * factor, memory=gpu.memory * factor, block_us=gpu.block_us / factor))


def scaling():
    """F9. The paper's text has trends alone."""
    def speedup(name, machine, ranks):
        return times(SEQUENTIAL, name, 1024, machine, ranks).layer / times(HARDWARE, name, 1024, machine, ranks).layer
    for name in ("Qwen2-MoE", "Phi-3.5"):
        by_ranks = [speedup(name, paper_machine(), r) for r in (2, 4, 8, 16)]
        yield row("F9", f"{name}: speed-up over sequential, 2 to 16 GPUs", "stays", " ".join(f"{v:.2f}" for v in by_ranks), "all above 1", min(by_ranks) > 1)
        by_flops = [speedup(name, faster(paper_machine(), f), 8) for f in (1, 2, 4)]
        yield row("F9", f"{name}: the same, GPU x1 x2 x4, links as they are", "grows", " ".join(f"{v:.2f}" for v in by_flops), f"rises, slack {SLACK:g}", rises(by_flops))


def check_rows():
    for part in (our_gemms, our_operations, exposed, classes, ideal, parts, deviations, scaling):
        yield from part()


def sensitivity():
    """What the check would be if 400 GB/s were of both directions, or if thread blocks polled as fast as our service warps signal."""
    halved, quick = gains(200), gains(400, SOFTWARE.signal_us)
    return {
        "F5 with 200 GB/s of a direction": statistics.mean(of_ideal(200).values()),
        "F6, RPM, with 200 GB/s of a direction": statistics.mean(halved["MH-PKT"].values()),
        "F6, DAM, with 200 GB/s of a direction": statistics.mean(halved["MH-DEP"].values()),
        "F6, RPM, with polls of 2 us": statistics.mean(quick["MH-PKT"].values()),
        "F6, DAM, with polls of 2 us": statistics.mean(quick["MH-DEP"].values()),
    }


def modes():
    """us of the four modes on the paper's machine."""
    return [{"model": n, "tokens": t, **{s.name: times(s, n, t, paper_machine()).layer for s in (MEDIATED, SOFTWARE, HARDWARE, IDEAL)}}
            for n in PAPER for t in TOKENS]
