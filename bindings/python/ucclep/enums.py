# SPDX-License-Identifier: Apache-2.0
"""The enumerations of the API."""
from __future__ import annotations

from enum import IntEnum


class Device(IntEnum):
    AUTO = 0
    CUDA = 1
    HIP = 2
    HOST = 3


class Mode(IntEnum):
    """Low latency (decode, few tokens) or high throughput (training and prefill, thousands)."""

    AUTO = 0
    LL = 1
    HT = 2


class Layout(IntEnum):
    """How received rows lie: LL has EXPERT_MAJOR, RANK_MAJOR and TILES, HT EXPERT_MAJOR, FLAT and TILES."""

    EXPERT_MAJOR = 1
    RANK_MAJOR = 2
    FLAT = 3
    TILES = 4


class ExpertIds(IntEnum):
    """Received topk_idx counts experts from this rank's first one, or over all ranks."""

    LOCAL = 0
    GLOBAL = 1


class ReplicaChoice(IntEnum):
    """Which copy of a logical expert a token takes: by turns, or the nearest where one is near (Group.set_expert_map)."""

    ROUND_ROBIN = 0
    NEAREST = 1


class OverflowRows(IntEnum):
    """Rows beyond the receiver's room: dropped with the record `Overflow`, or silently."""

    ERROR = 0
    DROP = 1


class Quant(IntEnum):
    """FP8_128: bf16 in, float8_e4m3 out with one scale for 128 elements."""

    NONE = 0
    FP8_128 = 1


class DataType(IntEnum):
    BFLOAT16 = 1
    FLOAT16 = 2
    FLOAT32 = 3
    FLOAT8_E4M3 = 4
    FLOAT8_E5M2 = 5
    FLOAT8_E8M0 = 6
    FLOAT4_E2M1X2 = 7
    UINT8 = 8
    INT32 = 9
    INT64 = 10


#: Bytes of a storage element.
ITEM_BYTES = {DataType.BFLOAT16: 2, DataType.FLOAT16: 2, DataType.FLOAT32: 4, DataType.FLOAT8_E4M3: 1,
              DataType.FLOAT8_E5M2: 1, DataType.FLOAT8_E8M0: 1, DataType.FLOAT4_E2M1X2: 1, DataType.UINT8: 1,
              DataType.INT32: 4, DataType.INT64: 8}

#: By the names that NumPy, ml_dtypes, torch and JAX give them.
BY_NAME = {"bfloat16": DataType.BFLOAT16, "float16": DataType.FLOAT16, "float32": DataType.FLOAT32,
           "float8_e4m3fn": DataType.FLOAT8_E4M3, "float8_e5m2": DataType.FLOAT8_E5M2, "float8_e8m0fnu": DataType.FLOAT8_E8M0,
           "float4_e2m1fn_x2": DataType.FLOAT4_E2M1X2, "uint8": DataType.UINT8, "bool": DataType.UINT8,
           "int32": DataType.INT32, "int64": DataType.INT64}
