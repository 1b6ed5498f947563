# SPDX-License-Identifier: Apache-2.0
"""Objects after their end, in other threads' and other processes' hands, and what a process leaves behind when it ends."""
import copy
import inspect
import os
import pickle
import re
import subprocess
import sys
import time

import pytest
import ucclep
from ucclep import Layout

SHAPE = dict(num_experts=4, top_k=1, max_tokens_per_rank=4, max_token_bytes=16)
GONE = "does not exist any more"


def objects_of(comm):
    """One of each kind, by the name of its class, with a call that needs it."""
    group = ucclep.Group(comm, **SHAPE)
    handle = group.handle(Layout.FLAT)
    memory, stream, event = comm.alloc(4096), comm.stream(), comm.event()
    window = comm.register(memory)
    with comm.graph(stream) as graph:
        pass
    return {
        "Graph": (graph, lambda: graph.launch(stream)),
        "Window": (window, window.close),
        "Event": (event, lambda: event.record()),
        "Stream": (stream, stream.synchronize),
        "Memory": (memory, memory.free),
        "Handle": (handle, handle.wait_counts),
        "Group": (group, lambda: group.handle_mem_size(Layout.FLAT)),
        "Communicator": (comm, comm.info),
    }


def end(thing):
    (getattr(thing, "destroy", None) or getattr(thing, "free", None) or thing.close)()


def test_after_its_end_every_call_raises(ranks):
    def rank_main(comm):
        for name, (thing, call) in objects_of(comm).items():
            assert thing.alive
            end(thing)
            assert not thing.alive
            for again in (call, lambda: end(thing)):
                with pytest.raises(ucclep.InvalidArgument, match=f"the {name} {GONE}"):
                    again()
    ranks(2, rank_main)


def test_objects_end_with_what_they_were_made_from(ranks):
    def rank_main(comm):
        things = objects_of(comm)
        things["Group"][0].destroy()
        assert not things["Handle"][0].alive and things["Stream"][0].alive
        comm.destroy()
        for name, (thing, call) in things.items():
            assert not thing.alive
            with pytest.raises(ucclep.InvalidArgument, match=GONE):
                call()
    ranks(2, rank_main)


def test_a_block_may_end_what_it_is_about(ranks):
    def rank_main(comm):
        with ucclep.Group(comm, **SHAPE) as group, group.handle(Layout.FLAT) as handle, comm.stream() as stream:
            handle.destroy()
            group.destroy()
            comm.destroy()
        assert not stream.alive
    ranks(2, rank_main)


def test_a_destroyed_stream_is_no_stream_for_others(ranks):
    def rank_main(comm):
        stream = comm.stream()
        stream.destroy()
        with pytest.raises(ucclep.InvalidArgument, match=f"the Stream {GONE}"):
            comm.synchronize(stream)
    ranks(1, rank_main)


def test_objects_are_neither_copied_nor_pickled(ranks):
    def rank_main(comm):
        for name, (thing, _) in objects_of(comm).items():
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=f"a {name} cannot be copied or pickled"):
                    duplicate(thing)
    ranks(1, rank_main)


@pytest.mark.parametrize("kind", ["Buffer", "ElasticBuffer", "EPBuffer"])
def test_every_method_of_a_destroyed_buffer_raises(buffers, kind):
    deep_ep = pytest.importorskip("deep_ep")
    cls = getattr(deep_ep, kind)

    def rank_main(buffer):
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied"):
                duplicate(buffer)
        buffer.destroy()
        methods = [name for name in dir(cls) if not name.startswith("_") and
                   inspect.isfunction(inspect.getattr_static(cls, name))]
        assert {"dispatch", "combine", "destroy", "get_comm_stream"} < set(methods)
        for name in methods:
            with pytest.raises(ucclep.InvalidArgument, match=f"the {kind} {GONE}"):
                getattr(buffer, name)()
        buffer.destroy = lambda: None  # for the fixture
    buffers(2, rank_main, make=lambda mpi: cls(None, comm=mpi))


# ---- processes ----

PREAMBLE = """
import os, sys, time
import ucclep
from ucclep import Communicator, Group, Layout

class Store:
    def set(self, key, value):
        name = key.replace("/", "_")
        with open(name + ".new", "w") as file:
            file.write(value)
        os.rename(name + ".new", name)
    def get(self, key):
        for _ in range(6000):
            if os.path.exists(key.replace("/", "_")):
                return open(key.replace("/", "_")).read()
            time.sleep(0.01)
        raise TimeoutError(key)

RANK = int(os.environ["RANK"])
def connect(name="0", ranks=2, rank=RANK):
    return Communicator.from_store(Store(), ranks, rank, name, device="host", timeout_ms=60000)
SHAPE = dict(num_experts=4, top_k=1, max_tokens_per_rank=4, max_token_bytes=16)
"""


def run(script, tmp_path, count=2):
    """[(exit status, output, seconds)] of so many processes."""
    environment = {**os.environ, "UCCLEP_TIMEOUT_MS": "60000"}
    begin = time.monotonic()
    processes = [subprocess.Popen([sys.executable, "-c", PREAMBLE + script], cwd=tmp_path, env={**environment, "RANK": str(i)},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for i in range(count)]
    return [(output, process.returncode, time.monotonic() - begin)
            for process in processes for output, _ in [process.communicate(timeout=250)]]


@pytest.mark.parametrize("linger", [0.5, 4])  # less, and more, than an interpreter that ends waits for its peers
def test_who_ends_early_disturbs_nobody(tmp_path, linger):
    """Whatever it leaves: communicators, in another order on each rank, and a group."""
    results = run(f"""
comms = {{name: connect(name) for name in "abc"}}
group = Group(comms["b"], **SHAPE)
for name in "ca" if RANK else "ac":
    comms[name] = comms.pop(name)
if RANK == 0:
    time.sleep({linger})
    with comms["a"].stream() as stream:
        stream.synchronize()
    assert all(comm.async_error() is None for comm in comms.values())
print("done")
""", tmp_path)
    assert [(output, status) for output, status, _ in results] == [("done\n", 0)] * 2
    assert all(linger < seconds < linger + 30 for *_, seconds in results)


def test_processes_with_several_ranks_end_together(tmp_path):
    results = run("""
import threading
kept = []
def main(rank):
    kept.append(connect(ranks=4, rank=rank))
threads = [threading.Thread(target=main, args=(2 * RANK + i,)) for i in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
time.sleep(RANK)
assert len(kept) == 2 and all(comm.async_error() is None for comm in kept)
""", tmp_path)
    assert [(output, status) for output, status, _ in results] == [("", 0)] * 2


@pytest.mark.parametrize("last, status, words", [
    ("sys.exit(3)", 3, "its process exited with status 3"), ("raise SystemExit(4)", 4, "its process exited with status 4"),
    ("sys.exit('bad news')", 1, "its process exited with status 1"), ("raise KeyError('lost')", 1, "aborted the communicator"),
    ("os._exit(5)", 5, "has died")])
def test_peers_of_a_process_that_fails_hear_at_once(tmp_path, last, status, words):
    """Rank 1, whose operation waits for it, hears why. Rank 2, which waits for it in a call, at least that it has gone."""
    results = run(f"""
import numpy as np
waits, works = connect("0", 3), connect("1", 3)
handle = Group(works, **{{**SHAPE, "num_experts": 6}}).handle(Layout.FLAT)
if RANK == 0:
    time.sleep(1)
    {last}
begin = time.monotonic()
try:
    if RANK == 1:
        handle.update(np.zeros((4, 1), np.int64))
        works.synchronize()
    else:
        Group(waits, **{{**SHAPE, "num_experts": 6}})
except ucclep.Error as error:
    print(f"{{time.monotonic() - begin < 30}} {{type(error).__name__}} {{error.message}}", flush=True)
Store().set("heard", "") if RANK == 1 else Store().get("heard")  # nobody hears of another end before
os._exit(0)
""", tmp_path, 3)
    assert results[0][1] == status
    assert results[1][1] == results[2][1] == 0
    assert re.search(r"^True RemoteError .*rank 0 \(pid \d+ on .*\) .*" + words, results[1][0]), results[1][0]
    assert re.search(r"^True .*rank 0", results[2][0]), results[2][0]


def test_a_forked_child(tmp_path):
    (output, status, _), = run("""
comm = connect(ranks=1)
group = Group(comm, **SHAPE)
handle = group.handle(Layout.FLAT)
child = os.fork()
if child == 0:
    for call in (comm.info, lambda: Group(comm, **SHAPE), handle.wait_counts, comm.abort):
        try:
            call()
            print("no error")
        except ucclep.InvalidUsage as error:
            assert "belongs to the process that forked this one" in error.message
    try:
        with comm:
            raise KeyError
    except KeyError:
        print("dropped")
    own = Communicator(1, 0, ucclep.unique_id(), device="host")
    with Group(own, **SHAPE) as of_child:
        print("works")
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert comm.info()["nranks"] == 1 and comm.async_error() is None
handle.destroy()
Group(comm, **SHAPE)
print("parent")
""", tmp_path, 1)
    assert (output, status) == ("dropped\nworks\nparent\n", 0)
