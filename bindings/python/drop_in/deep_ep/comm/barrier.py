# SPDX-License-Identifier: Apache-2.0
"""barrier, where DeepEP has it."""
from __future__ import annotations

from typing import Any


def barrier(buffer: Any, wait_comm_stream: bool = True, with_cpu_sync: bool = False, sequential: bool = True,
            context_idx: int | None = None) -> None:
    """[collective] Later work of the current stream, and with `with_cpu_sync` of the CPU, runs when all ranks have come."""
    buffer.barrier(wait_comm_stream, with_cpu_sync)
