# SPDX-License-Identifier: Apache-2.0
"""Buffer, where DeepEP 1 has it."""
from .buffers.legacy import Buffer
from .config import Config
from .events import EventHandle, EventOverlap

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap"]
