# SPDX-License-Identifier: Apache-2.0
"""Ranks that are threads of this process."""
import random
import socket
import threading

import pytest
import ucclep


def need_gpus(device, count):
    """Skips the test where there are fewer."""
    if device == "cuda":
        there = pytest.importorskip("torch").cuda.device_count()
        if there < count:
            pytest.skip(f"{count} ranks need as many GPUs, {there} are here")


def free_port():
    """A port for a listener that starts later. Below the range from which the system chooses ports (32768 and up), so that no
    connection made in between takes it."""
    for _ in range(100):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    pytest.fail("100 ports between 20000 and 32000 are in use")


def launch(nranks):
    """Arguments of Python for torch's launcher of `nranks` ranks. torch 1.13 does not start without the redirects on Python 3.11. Not
    --standalone: its ranks listen on a port of the system's range, which another program's connection may take first."""
    return ["-m", "torch.distributed.run", "--master_addr", "127.0.0.1", "--master_port", str(free_port()), "--nproc_per_node", str(nranks),
            "--redirects", "0:1", "--tee", "0:1"]


def run_threads(count, function):
    """function(i) in `count` threads; the results in order, or the error of the rank that failed."""
    results, errors = [None] * count, []

    def run(i):
        try:
            results[i] = function(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:  # what a rank heard of another's end is not the cause
        raise next((error for error in errors if not isinstance(error, (ucclep.RemoteError, ucclep.Aborted))), errors[0])
    return results


def run_ranks(nranks, function, device="host", **settings):
    """function(communicator) on each rank."""
    id_ = ucclep.unique_id()

    def rank_main(rank):
        index = {}
        if device == "cuda":
            import torch
            torch.cuda.set_device(rank)  # of this thread
            index["device_index"] = rank
        with ucclep.Communicator(nranks, rank, id_, device=device, **index, **settings) as comm:
            return function(comm)

    return run_threads(nranks, rank_main)


class ThreadMpi:
    """What deep_ep and ucclep need of a communicator of mpi4py, for a rank that is a thread."""

    def __init__(self, rank, size, shared):
        self.rank, self.size, self._shared = rank, size, shared

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def bcast(self, value, root):
        if self.rank == root:
            self._shared["value"] = value
        self._shared["barrier"].wait(60)
        value = self._shared["value"]
        self._shared["barrier"].wait(60)
        return value


def run_mpi(nranks, function):
    """function(comm) on each rank, with a ThreadMpi."""
    shared = {"barrier": threading.Barrier(nranks)}
    return run_threads(nranks, lambda rank: function(ThreadMpi(rank, nranks, shared)))
