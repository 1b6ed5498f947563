# SPDX-License-Identifier: Apache-2.0
"""python -m ucclep.bench times every operation and says what Python costs."""
import json
import subprocess
import sys

import pytest


def test_bench(tmp_path, device):
    if device != "host":
        pytest.skip("its ranks are threads on the host device")
    results = tmp_path / "results.json"
    command = "--ranks 2 --hidden 256 --experts 8 --topk 2 --ll-tokens 4,8 --ht-tokens 16 --iterations 2 --json".split()
    done = subprocess.run([sys.executable, "-m", "ucclep.bench", *command, str(results)], check=True, capture_output=True,
                          text=True, timeout=200)
    measured = json.loads(results.read_text())
    cost = measured["python_us_over_c"]
    assert f"a Python call costs {cost:.1f} us over the C call" in done.stdout
    assert 0 < cost < 100  # about 10 on a machine that does nothing else
    assert [(line["operation"], line["tokens"]) for line in measured["lines"]] == [
        ("ll dispatch", 4), ("ll combine", 4), ("ll dispatch", 8), ("ll combine", 8), ("ht update", 16), ("ht dispatch", 16),
        ("ht combine", 16)]
    assert all(line["us"] > 0 for line in measured["lines"])
