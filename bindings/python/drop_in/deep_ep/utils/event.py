# SPDX-License-Identifier: Apache-2.0
"""Events, where DeepEP has them."""
from ..events import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap"]
