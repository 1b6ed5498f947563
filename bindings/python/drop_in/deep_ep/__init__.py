# SPDX-License-Identifier: Apache-2.0
"""deep_ep over libucclep: what programs written for DeepEP import. On torch's CPU tensors it runs on the host device."""
import torch
import ucclep

from . import utils
from .buffers.elastic import ElasticBuffer, EPHandle
from .buffers.legacy import Buffer
from .config import Config
from .events import EventHandle, EventOverlap

#: The type of topk_idx; int32 is taken too.
topk_idx_t = torch.int64

__version__ = ucclep.version()
__all__ = ["Buffer", "Config", "ElasticBuffer", "EPHandle", "EventHandle", "EventOverlap", "topk_idx_t", "utils"]
