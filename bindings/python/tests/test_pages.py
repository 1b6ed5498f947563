# SPDX-License-Identifier: Apache-2.0
"""The program of docs/from-deep-ep.md, between two processes."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import launch

pytest.importorskip("torch")
pytest.importorskip("deep_ep")
PAGE = Path(__file__).parents[3] / "docs/from-deep-ep.md"


def test_the_program_of_the_page_runs(tmp_path):
    program = tmp_path / "example.py"
    program.write_text(re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1])
    done = subprocess.run([sys.executable, *launch(2), str(program)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "UCCLEP_DEVICE": "host"})
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"rank {rank}: 28 rows for 4 experts, 32 with copies; all results are right" in done.stdout
