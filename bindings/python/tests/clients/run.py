# SPDX-License-Identifier: Apache-2.0
"""Code of frameworks over deep_ep, on two processes: `make test-clients`. No test_*.py, so that `make test` does not take it."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import free_port

HERE = Path(__file__).parent
CLIENTS = sorted(path.stem[len("client_"):] for path in HERE.glob("client_*.py"))


@pytest.mark.parametrize("client", CLIENTS)
def test_client(client):
    if client in os.environ.get("CLIENTS_SKIP", "").replace(",", " ").split():
        pytest.skip("named in CLIENTS_SKIP")
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2",
                   "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([sys.executable, HERE / f"client_{client}.py"], env={**environment, "RANK": str(rank)},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    for process, output in zip(processes, outputs):
        passed = re.search(r"^(\d+) checks passed$", output, re.MULTILINE)
        assert process.returncode == 0 and passed and int(passed[1]) > 0, output
