# SPDX-License-Identifier: Apache-2.0
"""get_comm_stream, where DeepEP has it."""
from __future__ import annotations

from typing import Any


def get_comm_stream(buffer: Any) -> Any:
    """The stream on which the buffer's operations run."""
    return buffer.get_comm_stream()
