# SPDX-License-Identifier: Apache-2.0
"""Machines: what we measured on H200, what the paper simulates, and the networks of perf/model.py."""
import collections
import functools
import json
import os
import sys

from shapes import MODELS, TILE_ROWS

PERF = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PERF)
import model as network  # noqa: E402

# flops and memory in one us: what GEMMs reach, not what the data sheet promises.
Gpu = collections.namedtuple("Gpu", "name sms flops memory block_us cache_bytes")
Machine = collections.namedtuple("Machine", "name gpu link")


class Link(collections.namedtuple("Link", "bandwidth latency header")):
    """bytes/us of a direction, us one way, bytes of header for each packet."""

    def us(self, size, packet):
        return size * (1 + self.header / packet) / self.bandwidth


def results(name):
    with open(os.path.join(PERF, "results", name), encoding="utf-8") as file:
        return json.load(file)


@functools.lru_cache
def measured_gemms():
    """(model, rows, width, depth, us) of layer_perf --gemm-only on one H200; all experts on one rank."""
    shapes = {"qwen3-30b": "Qwen3-30B", "qwen2-moe": "Qwen2-MoE", "mixtral": "Mixtral", "phi-3.5": "Phi-3.5", "deepseek-v3": "DeepSeek-V3"}
    points = []
    for name, sizes in results("h200x1-layer.json")["gemms"].items():
        if name in shapes:
            m = MODELS[shapes[name]]
            for rows, gemms in sizes.items():
                points.append((m, int(rows.split()[0]), 2 * m.intermediate, m.hidden, gemms["up with SwiGLU"][0]))
                points.append((m, int(rows.split()[0]), m.hidden, m.intermediate, gemms["down"][0]))
    return points


def waves(model, rows, width, sms):
    return -(-model.experts * -(-rows // TILE_ROWS) * -(-width // 256) // sms)


@functools.lru_cache
def h200():
    """From three of our measured GEMMs: time of a thread block (two, of different depth) and rate of memory."""
    def point(rows, up):
        return next(p for p in measured_gemms() if p[0].name == "Qwen3-30B" and p[1] == rows and (p[2] == 2 * p[0].intermediate) == up)
    (m, _, wide, deep, up), (_, _, narrow, flat, down) = point(256, True), point(256, False)
    up, down = up / waves(m, 256, wide, 132), down / waves(m, 256, narrow, 132)
    slope = (up - down) / (deep - flat)
    flops = 132 * 2 * TILE_ROWS * 256 / slope
    few = point(16, True)
    memory = 2 * m.experts * few[2] * few[3] / few[4]
    return Gpu("H200", 132, flops, memory, up - slope * deep, 40e6)


# The H800 has the SMs of the H200 and 3.35 of its 4.8 TB/s.
def h800():
    return h200()._replace(name="H800", memory=h200().memory * 3.35 / 4.8)


def paper_machine(gigabytes=400):
    """As the paper simulates: 250 ns to a switch, 16 bytes of header for at most 128 of payload. Its text does not tell whether 400 GB/s
    are of a direction."""
    return Machine(f"paper, {gigabytes} GB/s", h800(), Link(gigabytes * 1e3, 0.5, 16))


def real_h800():
    """8x H800: 160 GB/s of 400 in both directions are usable (DeepEP, docs/legacy.md)."""
    return Machine("8x H800", h800(), Link(160e3, 0.8, 0))


def ceiling(name):
    return next(r for r in results("h200x4-ceiling.json")["results"] if r["name"] == name)


def our_machine():
    """H200s on NVLink: what plain copies between all reach, and a word that is written and read in order takes."""
    bandwidth = ceiling("all-to-all push")["bandwidth_gb_s"]["wire"]
    return Machine("H200", h200(), Link(bandwidth * 1e3, ceiling("flag ordered")["time_us"]["p50"], 0))


def measured_operations():
    """{operation: us} of HT with 4096 tokens on 4 H200, rows in windows."""
    result = next(r for r in results("h200x4-ht-dispatch-windows.json")[0]["results"] if r["tokens"] == 4096)
    dispatch = next(s for s in result["series"] if s["name"] == "dispatch")
    combine = next(r for r in results("h200x4-ht-combine-teams.json")["runs"] if (r["call"], r["run"]) == (3, "windows"))
    return {"dispatch": dispatch[dispatch["time"]]["p50"], "combine": combine["us"]["combine"]["p50"]}


@functools.lru_cache
def networks():
    """({(nic, mode): Constants}, {(nic, mode): errors that were not fitted})"""
    constants, used = network.fit()
    errors = collections.defaultdict(list)
    for row in network.check_rows(constants, used):
        if not row["fitted"]:
            errors[row["nic"], row["mode"]].append(row["error"])
    return constants, errors
