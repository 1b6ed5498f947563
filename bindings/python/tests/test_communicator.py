# SPDX-License-Identifier: Apache-2.0
"""How communicators are made, what they say, and how they end."""
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from ranks import free_port, need_gpus, run_mpi, run_threads

import ucclep


def test_info_topology_stats(ranks):
    def rank_main(comm):
        assert (comm.info()["rank"], comm.info()["nranks"]) == (comm.rank, 2)
        assert comm.topology() and comm.stats()["messages"] == 0 and comm.async_error() is None
        comm.check_async_error()
        return comm.rank
    assert ranks(2, rank_main) == [0, 1]


def test_from_bootstrap(device):
    need_gpus(device, 3)
    barrier, parts = threading.Barrier(3), [None] * 3

    def rank_main(rank):
        def allgather(mine):
            parts[rank] = mine
            barrier.wait(30)
            everything = list(parts)
            barrier.wait(30)
            return everything
        with ucclep.Communicator.from_bootstrap(3, rank, allgather, device=device, device_index=rank) as comm:
            return comm.rank
    assert run_threads(3, rank_main) == [0, 1, 2]


def test_an_allgather_that_fails(device):
    def allgather(_mine):
        raise KeyError("no store")
    with pytest.raises(ucclep.Error) as caught:
        ucclep.Communicator.from_bootstrap(1, 0, allgather, device=device)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ucclep.Error) as caught:
        ucclep.Communicator.from_bootstrap(1, 0, lambda mine: [], device=device)
    assert "1 parts" in str(caught.value.__cause__)


class Store:
    """What torch.distributed.Store has of set and get."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, 30)
            return self.values[key]


def test_from_store(device):
    store = Store()

    def rank_main(rank):
        with ucclep.Communicator.from_store(store, 2, rank, device=device, device_index=rank) as comm:
            return comm.rank
    assert run_threads(2, rank_main) == [0, 1]


def test_from_mpi(device):
    def rank_main(mpi):
        with ucclep.Communicator.from_mpi(mpi, device=device, device_index=mpi.rank) as comm:
            return comm.rank
    assert run_mpi(2, rank_main) == [0, 1]


def test_all_ranks_hear_of_a_bad_argument(ranks):
    def rank_main(comm):
        with pytest.raises(ucclep.InvalidArgument, match="num_experts"):
            ucclep.Group(comm, num_experts=8 if comm.rank else 16, top_k=1, max_tokens_per_rank=1, max_token_bytes=64)
    ranks(2, rank_main)


def test_bad_settings(device):
    with pytest.raises(TypeError, match="no_such_setting"):
        ucclep.Communicator(1, 0, ucclep.unique_id(), device=device, no_such_setting=1)
    with pytest.raises(ucclep.InvalidArgument, match="rank"):
        ucclep.Communicator(1, 5, ucclep.unique_id(), device=device)


def test_memory_and_windows(ranks):
    def rank_main(comm):
        with comm.alloc(4096) as memory, comm.register(memory) as window:
            assert window.nbytes == 4096
            source, target = np.arange(16, dtype=np.uint8), np.zeros(16, np.uint8)
            with comm.stream() as stream, comm.event() as before, comm.event() as after:
                before.record(stream)
                comm.copy(memory.pointer, source.ctypes.data, 16, stream)
                comm.copy(target.ctypes.data, memory.pointer, 16, stream)
                after.record(stream)
                after.synchronize()
                assert before.elapsed_ms(after) >= 0
                stream.wait_event(after)
                stream.synchronize()
            assert (target == source).all()
        with comm.alloc(64, host=True) as memory:
            np.asarray(memory)[:] = 7
            assert ucclep.tensor(memory).struct.data == memory.pointer
    ranks(2, rank_main)


def test_limits_without_a_communicator():
    shape = dict(num_experts=64, top_k=8, max_tokens_per_rank=128, max_token_bytes=14336)
    small, large = (ucclep.limits(None, nranks=n, **shape)["device_bytes"] for n in (2, 8))
    assert 0 < small < large


def test_abort_ends_a_wait(ranks):
    def rank_main(comm):
        if comm.rank == 0:
            comm.abort()
        else:
            with pytest.raises((ucclep.RemoteError, ucclep.Aborted)):
                ucclep.Group(comm, num_experts=2, top_k=1, max_tokens_per_rank=1, max_token_bytes=64)
    ranks(2, rank_main)


EXITS = """
import sys, threading, ucclep
id_ = ucclep.unique_id()
kept = []
def rank_main(rank):
    comm = ucclep.Communicator({n}, rank, id_, device="host")
    group = ucclep.Group(comm, num_experts={n}, top_k=1, max_tokens_per_rank=1, max_token_bytes=64)
    kept.append((group.handle(ucclep.Layout.FLAT), group, comm)[::{order}])
threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range({n})]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(kept) == {n}
{last}
"""


@pytest.mark.parametrize("n, order, last, status", [
    (1, 1, "", 0), (1, -1, "kept.clear()", 0), (2, 1, "", 0), (1, 1, "raise SystemExit(3)", 3),
    (1, 1, "raise KeyError", 1), (1, 1, "kept[0][-1].destroy()", 0), (1, 1, "sys.modules.clear()", 0)])
def test_the_interpreter_ends_cleanly(n, order, last, status):
    done = subprocess.run([sys.executable, "-c", EXITS.format(n=n, order=order, last=last)], capture_output=True, text=True,
                          timeout=250)
    assert done.returncode == status, done.stderr
    assert ("KeyError" in done.stderr) == (status == 1) and (status == 1 or not done.stderr)


FROM_ENV = """
import ucclep
with ucclep.Communicator.from_env(device="host") as comm, ucclep.Communicator.from_env(device="host") as second:
    print(comm.rank + second.rank)
"""


def test_from_env(tmp_path):
    pytest.importorskip("torch")
    port = str(free_port())
    ranks = [subprocess.Popen([sys.executable, "-c", FROM_ENV], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                   "MASTER_PORT": port}) for rank in range(2)]
    assert [rank.communicate(timeout=250)[0].strip() for rank in ranks] == ["0", "2"]


def test_from_env_says_what_is_missing(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match="RANK is not set"):
        ucclep.Communicator.from_env()
