# SPDX-License-Identifier: Apache-2.0
"""Times of other libraries across nodes, as they were published: what perf/model.py is fitted to and checked against.

All with 8 GPUs a node and 400 Gb/s of NIC for each GPU, 7168 elements, top-8 of 256 experts; LL with 128 tokens, HT with 4096.
"""
import collections

# us, or gigabytes: GB/s of the rows to nodes, the own node's included, as the tables for HT print them.
# copies: what the library sends to other nodes. "selection": one message for each (token, expert); "batch": the same rows,
# several in a message; "node": one row for each (token, node), in chunks.
Point = collections.namedtuple("Point", "system nic mode operation dtype ranks us gigabytes copies")


def series(system, nic, mode, operation, dtype, values, copies, in_gigabytes=False):
    return [Point(system, nic, mode, operation, dtype, ranks, None if in_gigabytes else value, value if in_gigabytes else None, copies)
            for ranks, value in values.items()]


def ll(system, nic, dispatch, combine, copies="selection", dtype="fp8"):
    return (series(system, nic, "ll", "dispatch", dtype, dispatch, copies) + series(system, nic, "ll", "combine", "bf16", combine, copies))


def ht(system, nic, fp8, bf16, combine, in_gigabytes=False):
    return (series(system, nic, "ht", "dispatch", "fp8", fp8, "node", in_gigabytes) + series(system, nic, "ht", "dispatch", "bf16", bf16, "node", in_gigabytes) +
            series(system, nic, "ht", "combine", "bf16", combine, "node", in_gigabytes))


POINTS = [
    # DeepEP, docs/legacy.md: H800, CX-7 InfiniBand. HT at 16 ranks is bound by the H800's NVLink of 160 GB/s.
    *ll("DeepEP V1", "cx7", {16: 118, 32: 155, 64: 173, 128: 192, 256: 194}, {16: 195, 32: 273, 64: 314, 128: 369, 256: 360}),
    *ht("DeepEP V1", "cx7", {32: 58, 64: 51}, {}, {32: 57, 64: 50}, in_gigabytes=True),
    # NCCL EP, README of contrib/nccl_ep: H100, NCCL 2.29; from GB/s over all 14.68 MB of a rank.
    *ll("NCCL EP", "cx7", {16: 191, 32: 274, 64: 301}, {16: 201, 32: 294, 64: 335}, dtype="bf16"),
    # pplx-garden, docs/fabric-lib.md: CX-7, and p5en (H200, 16 x 200 Gb/s EFA).
    *ll("pplx", "cx7", {16: 110.2, 32: 153.9, 64: 187.5}, {16: 185.5, 32: 266.3, 64: 309.1}, copies="batch"),
    *ll("pplx", "efa-p5en", {16: 214.8, 32: 229.1, 64: 266.7}, {16: 241.5, 32: 335.0, 64: 391.2}, copies="batch"),
    # UCCL-EP, README and paper (arXiv 2512.19849): MI300X with CX-7, MI300X with Thor-2, p5en.
    *ll("UCCL-EP", "cx7", {16: 136, 32: 224}, {16: 207, 32: 341}),
    *ll("UCCL-EP", "thor2", {32: 225}, {32: 305}),
    *ll("UCCL-EP", "efa-p5en", {16: 226, 24: 386, 32: 465}, {16: 293, 24: 580, 32: 694}),
    *ht("UCCL-EP", "cx7", {16: 74, 32: 60, 64: 52}, {16: 82, 32: 61, 64: 53}, {16: 78, 32: 60, 64: 51}, in_gigabytes=True),
    *ht("UCCL-EP", "thor2", {16: 71, 32: 49}, {16: 81, 32: 55}, {16: 45, 32: 50}, in_gigabytes=True),
    *ht("UCCL-EP", "efa-p5en", {16: 1196, 24: 1633, 32: 2022}, {}, {16: 6379, 24: 6365, 32: 4899}),
    # UCCL-EP with its messages batched by expert: README (16 ranks), project blog of April 2026 (32 ranks).
    *ll("UCCL-EP batched", "efa-p5en", {16: 174.9, 32: 178}, {}, copies="batch"),
    *series("UCCL-EP batched", "efa-p5en", "ll", "dispatch", "bf16", {32: 268}, "batch"),
    # awslabs/awsome-distributed-ai, RESULTS-p5.md: H100, 32 x 100 Gb/s EFA. Taken to be of FP8 dispatch.
    *ht("DeepEP by NVSHMEM", "efa-p5", {32: 43.7, 64: 39.6}, {}, {32: 46.1, 64: 39.2}, in_gigabytes=True),
    *ht("UCCL-EP", "efa-p5", {32: 38.2, 64: 29.9}, {}, {32: 30.2, 64: 26.7}, in_gigabytes=True),
]
