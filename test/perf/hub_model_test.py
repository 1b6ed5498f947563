#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: hub_model_test.py HUB_MODEL_MAIN_PY RESULTS_JSON HUB_MD

The model of the hub where its times can be counted by hand, by what may never get faster, and by what the documentation prints of its results.
"""
import contextlib
import io
import json
import os
import subprocess
import sys

ROW_BYTES = 512
START, END = 2, 4  # a launch before, scaling and a launch behind


def expect(condition, message):
    if not condition:
        sys.exit(f"hub_model_test.py: {message}")


def near(ours, counted, what):
    expect(abs(ours - counted) < 1e-3, f"{what}: {ours} us, counted {counted}")


class Tiny:
    """A GPU of one SM: GEMM 1 of a tile takes 10 us, GEMM 2 5 us, memory nothing. A row takes 1 us on the wire, and 3 to the other end."""

    def __init__(self):
        import calibration
        import layer
        import shapes
        self.layer = layer
        self.model = shapes.Model("tiny", ROW_BYTES // 2, 128, 2, 1)
        gpu = calibration.Gpu("tiny", 1, 2 * 128 * 256 * 256 / 10, 1e15, 0, 1e9)
        self.machine = calibration.Machine("tiny", gpu, calibration.Link(ROW_BYTES, 3, 0))

    def run(self, system, counts, **changed):
        machine = self.machine._replace(**changed)
        return self.layer.run_layer(system, self.model._replace(experts=len(counts[0])), machine, counts)


def check_by_hand(tiny, systems):
    hub = systems.HARDWARE._replace(row_us=0, signal_us=0)
    across = [[0, 128], [128, 0]]  # a tile each way
    near(tiny.run(systems.IDEAL, across).layer, START + 15 + END, "the ideal layer")
    near(tiny.run(hub, across).layer, START + 131 + 15 + 131 + END, "a tile there and back")
    near(tiny.run(hub._replace(signal_us=7), across).layer, START + 131 + 7 + 15 + 131 + END, "a signal")
    near(tiny.run(hub._replace(row_us=2), across).dispatch, 1 + 3 + 128 * 2, "a hub that takes 2 us for a row")
    near(tiny.run(systems.MEDIATED, across).layer, START + 13 + 131 + 15 + 131 + 3 * 2 + END, "mediated: counts, and three steps between kernels")
    near(tiny.run(hub, [[0, 0, 0], [128, 0, 0], [128, 0, 0]]).dispatch, 3 + 256, "two sources and one port")
    near(tiny.run(hub, [[128, 0], [0, 128]]).layer, START + 15 + END, "rows that stay")
    header = tiny.machine.link._replace(header=16)
    near(tiny.run(hub._replace(packet=32), across, link=header).dispatch, 3 + 128 * 1.5, "packets of 32 bytes behind headers of 16")
    near(tiny.run(hub._replace(slower=2), across).window, 131 + 20, "GEMMs that take twice as long")


def check_tiles(tiny, systems):
    """Two tiles: the first is computed while the second is under way, unless packets mix or the layer waits for all."""
    hub = systems.HARDWARE._replace(row_us=0, signal_us=0)
    counts = [[0, 256], [256, 0]]
    early, mixed = tiny.run(hub, counts), tiny.run(hub._replace(window=256), counts)
    near(mixed.window, 259 + 20, "both tiles behind the last packet")
    expect(early.layer < mixed.layer, f"tiles that come early do not help: {early}, {mixed}")
    import shapes
    import tiles
    ready = []
    counters = tiles.Counters([[130, 1]], False, ready.append)
    counters.add(shapes.Batch(0, 0, 0, 100, 0, None))
    expect(not ready, "a tile of 100 rows is ready, and more come")
    counters.add(shapes.Batch(1, 0, 0, 30, 0, None))
    expect([(t.rows, t.parts) for t in ready] == [(128, [(0, 100), (1, 28)])], f"{[(t.rows, t.parts) for t in ready]}")
    counters.add(shapes.Batch(0, 0, 1, 1, 0, None))
    expect(sorted(t.rows for t in ready) == [1, 2, 128], f"the last rows of the experts: {[t.rows for t in ready]}")


def check_weights(tiny, systems):
    """Weights at 40 us for GEMM 1's and 20 for GEMM 2's: read once where L2 keeps them, else for each of two tiles."""
    counts = [[256, 0], [0, 256]]
    gpu = tiny.machine.gpu._replace(memory=2 * 256 * 256 / 40)
    start = 256 * ROW_BYTES / gpu.memory + 2
    near(tiny.run(systems.IDEAL, counts, gpu=gpu).window + start, start + 40 + 10, "weights that L2 keeps")
    near(tiny.run(systems.IDEAL, counts, gpu=gpu._replace(cache_bytes=-1)).window + start, start + 80, "weights that it does not")


def check_monotone(tiny, systems, shapes):
    model = shapes.MODELS["Qwen2-MoE"]
    counts = shapes.draw_routing(model, 64, 4)
    expect(all(sum(c) == 64 * model.topk for c in counts), "a draw has lost rows")
    machine = tiny.layer_machine
    us = lambda system, **link: tiny.layer.run_layer(system, model, machine._replace(link=machine.link._replace(**link)), counts).layer  # noqa: E731
    order = [us(s) for s in (systems.IDEAL, systems.HARDWARE, systems.ablation()["MH-Base"], systems.MEDIATED, systems.SEQUENTIAL)]
    expect(order == sorted(order), f"ideal, hub, hub without its parts, mediated, sequential: {order}")
    rising = [us(systems.HARDWARE, bandwidth=b) for b in (400e3, 100e3, 25e3)] + [us(systems.HARDWARE, bandwidth=25e3, latency=50)]
    expect(rising == sorted(rising) and rising[0] < rising[-1], f"slower links are faster: {rising}")
    expect(us(systems.IDEAL, bandwidth=1, latency=1e6) == order[0], "the ideal layer knows the links")
    expect(us(systems.HARDWARE) == order[1], "two runs differ")


def check_exit(main, figures, report):
    """--check ends with 1 where a figure is out, and prints it."""
    out = figures.between("F0", "made up", "1", 3.0, 0.9, 1.1)
    inside = figures.between("F0", "made up", "1", 1.0, 0.9, 1.1)
    for rows, status in ([inside], 0), ([inside, out], 1):
        figures.check_rows = lambda rows=rows: rows
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            expect(main.main(["--check"]) == status, f"--check of {rows} does not end with {status}")
        expect(("OUT" in text.getvalue()) == (status == 1), text.getvalue())
    expect(not figures.rises([1, 0.9]) and figures.rises([1, 1.2]), "rises() takes what falls")


def check_documentation(results, page):
    with open(results, encoding="utf-8") as file:
        rows = json.load(file)["check"]
    with open(page, encoding="utf-8") as file:
        said = [[c.strip() for c in line.split("|")[1:-1]] for line in file if line.startswith(("| F", "| ours"))]
    true = [[r["figure"], r["what"].strip(), r["paper"], r["ours"], "yes" if r["ok"] else "OUT"] for r in rows]
    expect(said and all(line in true for line in said), f"{page} prints what {results} has not: {[line for line in said if line not in true]}")
    expect({r["figure"] for r in rows} == {"ours", "F2", "F4", "F5", "F6", "F8", "F9"}, f"{results} has other figures")
    expect([r for r in true if r[-1] == "OUT"] == [line for line in said if line[-1] == "OUT"], f"{page} leaves out what is out")


def check_usage(program):
    for arguments, status, word in (["--help"], 0, "--projection"), (["--plot", "x.txt"], 2, "has to end with"), (["--check", "--projection"], 2, "not allowed"):
        done = subprocess.run([sys.executable, "-B", program, *arguments], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect(done.returncode == status and word in done.stdout, f"{arguments}: {done.returncode} {done.stdout}")


def main(program, results, page):
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    import importlib.util
    import figures
    import report
    import shapes
    import systems
    spec = importlib.util.spec_from_file_location("hub_model_main", program)
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    tiny = Tiny()
    tiny.layer_machine = figures.paper_machine()
    check_by_hand(tiny, systems)
    check_tiles(tiny, systems)
    check_weights(tiny, systems)
    check_monotone(tiny, systems, shapes)
    check_exit(command, figures, report)
    check_documentation(results, page)
    check_usage(program)


if __name__ == "__main__":
    main(*sys.argv[1:])
