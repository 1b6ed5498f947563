# SPDX-License-Identifier: Apache-2.0
"""EngramBuffer, where DeepEP has it."""
from .others import EngramBuffer

__all__ = ["EngramBuffer"]
