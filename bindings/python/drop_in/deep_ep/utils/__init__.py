# SPDX-License-Identifier: Apache-2.0
"""Events, under the names by which programs import them, and helpers of tests and benchmarks."""
from . import event
from .event import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap", "event"]
