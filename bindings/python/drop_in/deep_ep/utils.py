# SPDX-License-Identifier: Apache-2.0
"""Events, under the name by which programs import them."""
from .events import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap"]
