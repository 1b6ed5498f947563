# SPDX-License-Identifier: Apache-2.0
"""Ways to run a MoE layer, each as what it adds to the GEMMs."""
import collections

HOST_SYNC_US = 35       # assumed: counts to the host and back, a launch behind them (research notes, not measured here)
MEDIATION_US = 13       # comments of DeepGEMM's Mega MoE: 6.5 offsets, 2 index, 4 barrier; with rounding
LAUNCH_US = 2           # assumed: from kernel to kernel in a graph
HOST_LAUNCH_US = 4      # assumed: the same without a graph
NCCL_SHARE = 316 / 351  # measured on 4 H200: NCCL's all-to-all over that of plain copies
INLINE_SHARE = 1.13     # published: a compute kernel with inlined transfers takes 11 to 15 % longer
RESIDENT_WARPS = 132 * 64
SECTOR, LINE = 32, 128  # bytes of a store that nothing merges, and of a full packet

System = collections.namedtuple("System", (
    "name", "communicates",
    "tiles",      # experts take tiles as they come; else they wait for all rows of a chunk
    "chunks",
    "before",     # us between routing and the first row
    "gap",        # us of each step between kernels that wait for each other
    "passes",     # over the rows in memory: before they leave, when they have come, before they return, when they have returned
    "packet",     # bytes of payload
    "share",      # of the link's bandwidth
    "window",     # rows whose packets mix on the wire; 0: none
    "order",      # "rows" or "waves"
    "row_us",     # to give a row its place
    "signal_us",  # from the last row of a tile to its thread blocks
    "sms", "keeps_sms",  # that send, until the last row has left or to the end of the layer
    "slower",     # factor of the GEMMs
), defaults=("", True, True, 1, 0, LAUNCH_US, (0, 0, 0, 0), LINE, 1, 0, "rows", 0, 0, 0, False, 1))

IDEAL = System("ideal", communicates=False)
HARDWARE = System("hardware hub", row_us=1 / 1755, signal_us=0.1)  # a cycle of 1755 MHz
# 8 service warps, each 16 rows/us; 16 SMs send.
SOFTWARE = System("software hub", row_us=1 / (8 * 16), signal_us=2, sms=16, order="waves")
MEDIATED = System("mediated", tiles=False, before=MEDIATION_US)

# The baselines of the paper, as classes.
SEQUENTIAL = System("sequential (Megatron-TE)", tiles=False, before=HOST_SYNC_US, gap=3 * HOST_LAUNCH_US, passes=(1, 1, 1, 1), share=NCCL_SHARE)
CHUNKS_2 = SEQUENTIAL._replace(name="2 chunks (FasterMoE)", chunks=2)
CHUNKS_4 = SEQUENTIAL._replace(name="4 chunks (Tutel)", chunks=4)
TILES = System("tiles, mediated (Comet)", before=HOST_SYNC_US, gap=HOST_LAUNCH_US, signal_us=2, sms=16, keeps_sms=True)
FUSED = System("fused loads and stores (CCFuser)", before=MEDIATION_US, packet=SECTOR, window=RESIDENT_WARPS, slower=INLINE_SHARE)
CLASSES = (SEQUENTIAL, CHUNKS_2, CHUNKS_4, TILES, FUSED)

POLL_US = 14.0  # fitted to the mean gain of DAM in the paper's ablation, see figures.py


def ablation(poll_us=POLL_US):
    """The hub without its parts. Without RPM stores leave as they are made; without DAM thread blocks poll."""
    no_rpm = {"packet": SECTOR, "window": RESIDENT_WARPS}
    no_dam = {"signal_us": poll_us}
    return {
        "MH-Base": HARDWARE._replace(name="MH-Base", **no_rpm, **no_dam), "MH-PKT": HARDWARE._replace(name="MH-PKT", **no_dam),
        "MH-DEP": HARDWARE._replace(name="MH-DEP", **no_rpm), "MH": HARDWARE._replace(name="MH"),
    }
