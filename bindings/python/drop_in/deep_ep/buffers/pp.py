# SPDX-License-Identifier: Apache-2.0
"""PPBuffer, where DeepEP has it."""
from .others import PPBuffer

__all__ = ["PPBuffer"]
