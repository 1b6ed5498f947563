# SPDX-License-Identifier: Apache-2.0
"""BufferAllocator, where DeepEP has it."""
from .others import BufferAllocator

__all__ = ["BufferAllocator"]
