# SPDX-License-Identifier: Apache-2.0
"""deep_ep over libucclep: what programs written for DeepEP import. On torch's CPU tensors it runs on the host device."""
import ucclep

from . import _C, comm, utils
from ._C import get_num_allocation_alignment, get_num_rdma_alignment, get_num_tma_alignment, topk_idx_t
from .buffers.allocator import BufferAllocator
from .buffers.base import BufferBase
from .buffers.bucket import BucketBuffer, BucketSession
from .buffers.elastic import ElasticBuffer
from .buffers.engram import EngramBuffer
from .buffers.ep import EPBuffer
from .buffers.legacy import Buffer
from .buffers.pp import PPBuffer
from .comm import destroy_all_managed_nccl_comm, get_logical_domain_size, get_physical_domain_size
from .config import Config
from .ep_handles import EPHandle
from .events import EventHandle, EventOverlap
from .hybrid_ep_buffer import HybridEPBuffer

__version__ = ucclep.version()
__all__ = [
    "BucketBuffer", "BucketSession", "Buffer", "BufferAllocator", "BufferBase", "Config", "EPBuffer", "EPHandle",
    "ElasticBuffer", "EngramBuffer", "EventHandle", "EventOverlap", "HybridEPBuffer", "PPBuffer", "comm",
    "destroy_all_managed_nccl_comm", "get_logical_domain_size", "get_num_allocation_alignment", "get_num_rdma_alignment",
    "get_num_tma_alignment", "get_physical_domain_size", "topk_idx_t", "utils",
]
