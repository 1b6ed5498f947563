# SPDX-License-Identifier: Apache-2.0
"""Events, under the names by which programs import them, and helpers of tests and benchmarks."""
from . import comm, envs, event, math, semantic
from .envs import check_nvlink_connections
from .event import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap", "check_nvlink_connections", "comm", "envs", "event", "math", "semantic"]
