# SPDX-License-Identifier: Apache-2.0
"""What python -m ucclep.info prints."""
import subprocess
import sys

import ucclep


def test_info():
    lines = subprocess.run([sys.executable, "-m", "ucclep.info"], check=True, capture_output=True, text=True,
                           timeout=250).stdout.splitlines()
    assert lines[0] == f"libucclep {ucclep.version()}"
    assert any(line.startswith("device: ") for line in lines) and any(line.startswith("rank 0: ") for line in lines)
    assert "transport loopback: works" in "\n".join(lines)
    assert all(any(line.startswith(f"transport {name}: ") for line in lines) for name in ("ofi", "verbs"))
