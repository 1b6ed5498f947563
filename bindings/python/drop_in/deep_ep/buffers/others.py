# SPDX-License-Identifier: Apache-2.0
"""Classes of DeepEP 2.5 that have nothing to do with dispatch and combine: they are there by name."""
from __future__ import annotations

from typing import Any

from .base import BufferBase, outside


class _NotCovered(BufferBase):
    WHAT = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}: libucclep moves rows between tokens and experts; it has no "
                                  f"{self.WHAT}")


class EngramBuffer(_NotCovered):
    """Not covered: raises NotImplementedError."""

    WHAT = "engram"


class BucketBuffer(_NotCovered):
    """Not covered: raises NotImplementedError."""

    WHAT = "all-gather, all-reduce or reduce-scatter"


class BucketSession(_NotCovered):
    """Not covered: raises NotImplementedError."""

    WHAT = "all-gather, all-reduce or reduce-scatter"


class PPBuffer(_NotCovered):
    """Not covered: raises NotImplementedError."""

    WHAT = "pipeline"


class BufferAllocator(_NotCovered):
    """Not covered: raises NotImplementedError."""

    WHAT = "tensors inside a buffer"


for _class, _methods in {
    EngramBuffer: ("get_storage_size_hint", "get_theoretical_config", "set_config", "write", "fetch"),
    BucketBuffer: ("get_theoretical_num_sms", "session", "barrier", "all_gather", "all_reduce", "reduce_scatter"),
    PPBuffer: ("send", "recv"),
}.items():
    for _name in _methods:
        setattr(_class, _name, outside(_name, _class.WHAT))
