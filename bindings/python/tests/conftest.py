# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads, the device under test, and a report for tools/test_summary.py."""
import os

import pytest
from ranks import need_gpus, run_mpi, run_ranks


def pytest_addoption(parser):
    parser.addoption("--device", default="host", choices=["host", "cuda"], help="where the ranks are")
    parser.addoption("--tier", default="all", choices=["test", "more", "all"], help="test: those without the mark `more`; more: the others")
    parser.addoption("--report", help="a file for tools/test_summary.py")


def pytest_collection_modifyitems(config, items):
    tier = config.getoption("--tier")
    if tier == "all":
        return
    others = [item for item in items if (item.get_closest_marker("more") is None) == (tier == "more")]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture
def device(request):
    return request.config.getoption("--device")


@pytest.fixture
def ranks(device):
    """ranks(n, function): function(communicator) on n ranks, each a thread; returns what they returned."""
    def run(nranks, function, **settings):
        need_gpus(device, nranks)
        return run_ranks(nranks, function, device=device, **settings)
    return run


@pytest.fixture
def buffers(device):
    """buffers(n, function, make=...): function(buffer) on n ranks; make(comm) makes a rank's buffer."""
    torch = pytest.importorskip("torch")
    deep_ep = pytest.importorskip("deep_ep")
    from moe import HIDDEN, ROOM

    def normal(mpi, **settings):
        room = {"num_nvl_bytes": mpi.size * 2 * HIDDEN * ROOM}
        return deep_ep.Buffer(comm=mpi, explicitly_destroy=True, **{**room, **settings})

    def run(nranks, function, make=normal, **settings):
        need_gpus(device, nranks)

        def rank_main(mpi):
            if device == "cuda":
                torch.cuda.set_device(mpi.rank)
            buffer = make(mpi, **settings)
            try:
                return function(buffer)
            except BaseException:
                buffer._comm.abort()  # the others need not wait
                raise
            finally:
                buffer.destroy()
        return run_mpi(nranks, rank_main)
    return run


class _Report:
    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")

    def write(self, event, text=""):
        print(event, text, sep="\t", file=self.file, flush=True)

    def pytest_runtest_logstart(self, nodeid):
        self.write("begin", nodeid)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            last_lines = " ".join(str(report.longrepr).split("\n")[-3:]).replace("\t", " ")
            self.write("failed", f"{report.nodeid}\t{last_lines}")
        elif report.skipped:
            self.write("skipped", f"{report.nodeid}\t{report.longrepr[2]}")
        elif report.when == "call":
            self.write("passed", report.nodeid)

    def pytest_sessionfinish(self, exitstatus):
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.write("end")


def pytest_configure(config):
    config.addinivalue_line("markers", "more: runs in `make test-more`, not in `make test`")
    slow = config.getoption("--device") == "host"  # its ranks share the CPU's cores
    os.environ.setdefault("UCCLEP_TIMEOUT_MS", "120000" if slow else "20000")
    path = config.getoption("--report")
    if path:
        config.pluginmanager.register(_Report(path))
