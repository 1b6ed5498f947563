# SPDX-License-Identifier: Apache-2.0
"""Classes of DeepEP 2.5 that have nothing to do with dispatch and combine: they are there by name."""
from __future__ import annotations

from typing import Any

from .base import BufferBase


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
