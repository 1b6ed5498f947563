# SPDX-License-Identifier: Apache-2.0
"""What programs import from DeepEP's native part."""
from __future__ import annotations

import torch
import ucclep

from .config import Config
from .events import EventHandle
from .low_latency import size_hint

__all__ = ["Config", "EventHandle", "get_elastic_buffer_alignment", "get_ep_buffer_alignment",
           "get_low_latency_rdma_size_hint", "get_num_allocation_alignment", "get_num_rdma_alignment",
           "get_num_tma_alignment", "is_sm90_compiled", "topk_idx_t"]

#: The type of topk_idx; int32 is taken too.
topk_idx_t = torch.int64

get_low_latency_rdma_size_hint = size_hint


def is_sm90_compiled() -> bool:
    """Whether the library has code for GPUs of compute capability 9.0."""
    return "sm_90" in ucclep.build_info()


def get_num_allocation_alignment() -> int:
    """The number of bytes of which allocations of GPU memory are multiples."""
    return 2 << 20


get_elastic_buffer_alignment = get_ep_buffer_alignment = get_num_allocation_alignment


def get_num_rdma_alignment() -> int:
    """The number of bytes at whose multiples rows begin."""
    return 16


def get_num_tma_alignment() -> int:
    """The number of bytes at whose multiples columns of scales begin."""
    return 16
