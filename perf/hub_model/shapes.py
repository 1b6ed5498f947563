# SPDX-License-Identifier: Apache-2.0
"""Models of the paper and ours, who gets how many rows, and in what order rows leave."""
import collections
import itertools
import random

Model = collections.namedtuple("Model", "name hidden intermediate experts topk")

MODELS = {m.name: m for m in (
    Model("Mixtral", 4096, 14336, 8, 2), Model("Qwen2-MoE", 2048, 1408, 64, 4), Model("Phi-3.5", 4096, 6400, 16, 2),
    Model("Qwen3-30B", 2048, 768, 128, 8), Model("DeepSeek-V3", 7168, 2048, 256, 8))}
PAPER = ("Mixtral", "Qwen2-MoE", "Phi-3.5")
TOKENS = (16, 64, 256, 1024, 4096)  # of a rank: the paper's 128 to 32768 on 8 GPUs, in steps of 4

TILE_ROWS = 128
GRAINS = 256  # a rank's rows travel in at most about so many batches: rows of one expert stand in for each other

# `window`: batches whose packets mix on the wire, so that none of them is whole before all are; None without mixing.
Batch = collections.namedtuple("Batch", "source target expert rows chunk window")


class Window:
    def __init__(self, travelling):
        self.left = travelling
        self.waiting = []  # [(rank, when the batch is there, batch)]


def draw_counts(model, tokens, shares, rng):
    """Rows of one source for each expert: a multinomial draw by its normal approximation, with the right sum."""
    total = tokens * model.topk
    counts = [max(0, round(rng.gauss(total * s, (total * s * (1 - s)) ** 0.5))) for s in shares]
    missing = total - sum(counts)
    while missing:
        expert = rng.randrange(len(counts))
        step = 1 if missing > 0 else -1
        if shares[expert] > 0 and counts[expert] + step >= 0:
            counts[expert] += step
            missing -= step
    return counts


def draw_shares(model, deviation, rng):
    """Shares of the experts. `deviation` is the standard deviation of the share of an eighth of the experts, as of one of 8 GPUs:
    with Mixtral that of an expert's share."""
    groups = [max(0.0, 1 / 8 + deviation * rng.gauss(0, 1)) for _ in range(8)]
    return [groups[e * 8 // model.experts] / sum(groups) * 8 / model.experts for e in range(model.experts)]


def draw_routing(model, tokens, ranks, deviation=0.0, seed=1):
    """counts[source][expert], `ranks` of them. The same seed draws alike with any deviation."""
    rng = random.Random(f"{model.name} {tokens} {ranks} {seed}")
    shares = draw_shares(model, deviation, rng)
    return [draw_counts(model, tokens, shares, rng) for _ in range(ranks)]


def batches_of(source, counts, ranks, chunks):
    """A source's rows as batches, chunk by chunk."""
    per_rank = len(counts) // ranks
    grain = min(TILE_ROWS, max(1, round(sum(counts) / GRAINS)))
    for chunk in range(chunks):
        for expert, count in enumerate(counts):
            rows = count * (chunk + 1) // chunks - count * chunk // chunks
            for first in range(0, rows, grain):
                yield Batch(source, expert // per_rank, expert % per_rank, min(grain, rows - first), chunk, None)


# ---- Order policies: which batch leaves next ----

def in_turn(batches, source, ranks):
    """One of each destination after the other, beginning behind the source."""
    queues = [[] for _ in range(ranks)]
    for batch in batches:
        queues[(batch.target - source - 1) % ranks].append(batch)
    return [b for turn in itertools.zip_longest(*queues) for b in turn if b]


def by_rows(batches, source, ranks, rng):
    """As tokens come: experts in any order, whole rows, destinations in turn."""
    batches = list(batches)
    rng.shuffle(batches)
    return in_turn(batches, source, ranks)


def by_waves(batches, source, ranks, rng):
    """The first expert of each rank first."""
    batches = list(batches)
    rng.shuffle(batches)
    return in_turn(sorted(batches, key=lambda b: b.expert), source, ranks)


def mixed(batches, rows):
    """Packets of up to `rows` rows leave in any order."""
    result, part, size = [], [], 0
    for batch in batches:
        part.append(batch)
        size += batch.rows
        if size >= rows:
            result += with_window(part)
            part, size = [], 0
    return result + with_window(part)


def with_window(batches):
    """Rows for the own rank are among them: without a buffer for each destination they stand in line with the others."""
    window = Window(sum(b.source != b.target for b in batches))
    return [b._replace(window=window) for b in batches]
