# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends waits for a rank that does not come."""
import signal
import subprocess
import sys
import threading
import time

import pytest
import ucclep

# Rank 1 makes what has to be made by all, and comes to nothing else.
SCRIPT = """
import sys, threading
import numpy, ucclep
from ucclep import Communicator, Group, Layout, Mode

SHAPE = dict(num_experts=2, top_k=1, max_tokens_per_rank=4, max_token_bytes=16)
what, id_ = sys.argv[1], ucclep.unique_id()

def say():
    print("waiting", flush=True)

def both(make):
    made = [None, None]
    def run(rank):
        made[rank] = make(rank)
    other = threading.Thread(target=run, args=(1,))
    other.start()
    run(0)
    other.join()
    return made

if what == "init":
    say()
    Communicator(2, 0, id_, device="host")
comms = both(lambda rank: Communicator(2, rank, id_, device="host"))
comm = comms[0]
if what == "group":
    say()
    Group(comm, **SHAPE)
if what == "window":
    memory = comm.alloc(64)
    say()
    comm.register(memory)
groups = both(lambda rank: Group(comms[rank], **SHAPE))
handle = groups[0].handle(Layout.FLAT, Mode.HT)
if what != "group destroy":
    handle.update(numpy.zeros((1, 1), numpy.int64))
say()
{"synchronize": comm.synchronize, "counts": handle.wait_counts, "destroy": comm.destroy,
 "group destroy": groups[0].destroy}[what]()
"""


@pytest.mark.parametrize("what", ["init", "group", "window", "synchronize", "counts", "destroy", "group destroy"])
def test_ctrl_c_ends_a_wait(what, device):
    pytest.importorskip("numpy")
    if device != "host":
        pytest.skip("its ranks are threads on the host device")
    with subprocess.Popen([sys.executable, "-c", SCRIPT, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout.readline() == "waiting\n", process.stderr.read()
        time.sleep(0.5)  # it waits now; if not, it hears of the signal before
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        errors = process.communicate(timeout=60)[1]
        assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"
        assert process.returncode in (1, -signal.SIGINT)
        assert time.monotonic() - begin < 15  # the library's own limit is 100 s


def test_handlers_that_return_interrupt_nothing(device):
    if device != "host":
        pytest.skip("its ranks are threads on the host device")
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(True))
    try:
        id_ = ucclep.unique_id()
        main = threading.main_thread().ident

        def other():
            time.sleep(0.5)
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.5)
            ucclep.Communicator(2, 1, id_, device="host").destroy()

        thread = threading.Thread(target=other)
        thread.start()
        with ucclep.Communicator(2, 0, id_, device="host") as comm:
            assert heard and comm.nranks == 2
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
