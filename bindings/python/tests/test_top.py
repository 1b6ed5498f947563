# SPDX-License-Identifier: Apache-2.0
"""python -m ucclep.top: rates of a run with traffic, masks, processes that are gone, and files that anybody may have written."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import ucclep
from ucclep import Layout, Mode, top

SHAPE = dict(num_experts=4, top_k=1, max_tokens_per_rank=4, max_token_bytes=64)
VALID = {**dict.fromkeys(top.NUMBERS, 0), **dict.fromkeys(top.TEXTS, "x"), "version": 1, "masked_ranks": [], "evicted": False,
         "nranks": 1, "pid": os.getpid(), "error": ""}


@pytest.fixture(autouse=True)
def only_on_the_host(device):
    if device != "host":
        pytest.skip("statistics are the same on GPUs")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("UCCLEP_STATS_DIR", str(tmp_path))
    return tmp_path


def run_top(*arguments):
    done = subprocess.run([sys.executable, "-m", "ucclep.top", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    assert all(len(line) <= top.WIDTH for line in done.stdout.splitlines() if "--json" not in arguments)
    return done


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


def test_rates_rise_with_traffic(ranks, folder):
    rounds = [1000000]  # rank 0 ends the run; nobody is more than a round ahead of it
    found = {}

    def moves(snapshot):
        return all(snapshot.rates.get(name, 0) > 0 for name in ("dispatches", "bytes_sent", "bytes_received", "messages"))

    def rank_main(comm):
        handle = ucclep.Group(comm, **SHAPE).handle(Layout.EXPERT_MAJOR, Mode.LL)
        x, ids, rows = np.ones((4, 16), np.float32), np.arange(4).reshape(4, 1), np.zeros((1, 16, 16), np.float32)
        end, round_ = time.monotonic() + 30, 0
        while round_ < rounds[0]:
            handle.dispatch(x, rows, topk_idx=ids)
            comm.synchronize()
            if comm.rank == 0 and round_ < rounds[0] - 4:
                found.update(top.scan(str(folder), found)[0])
                if len(found) == 4 and all(map(moves, found.values())) or time.monotonic() > end:
                    rounds[0] = round_ + 4
            round_ += 1

    ranks(4, rank_main, ranks_per_node=1, transport="loopback")
    assert len(found) == 4 and all(map(moves, found.values())), found
    assert sorted(s.values["rank"] for s in found.values()) == [0, 1, 2, 3]
    assert all(s.state == "running" and s.values["transport"] == "loopback" for s in found.values())
    assert list(folder.iterdir()) == []  # communicators that end remove their files


def test_table_of_a_group_with_masks(ranks, folder):
    together = threading.Barrier(2)

    def rank_main(comm):
        group = ucclep.Group(comm, enable_mask=1, **SHAPE)
        if comm.rank == 0:
            group.mask_update([1, 0])
            comm.synchronize()
            wait_for(lambda: sum(s.values["masked"] for s in top.scan(str(folder), {})[0].values()) == 1)
            tables.append(run_top("--once", "--interval", 0.1))
            tables.append(run_top(folder, "--once", "--interval", 0.1, "--json"))
        together.wait(60)

    tables = []
    ranks(2, rank_main)
    lines = tables[0].stdout.splitlines()
    assert tables[0].returncode == 0 and lines[0].split()[:3] == ["RANK", "PROCESS", "STATE"]
    assert lines[1].split()[0] == "0/2" and lines[1].split()[-1] == "1"
    assert lines[2].split()[0] == "1/2" and lines[2].split()[-1] == "-"
    first = json.loads(tables[1].stdout)["communicators"][0]
    assert first["masked_ranks"] == [1] and first["state"] == "running" and first["groups"] == 1


def test_a_process_that_was_killed_is_gone(folder):
    script = "import time, ucclep; c = ucclep.Communicator(1, 0, ucclep.unique_id(), device='host'); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        wait_for(lambda: [s.state for s in top.scan(str(folder), {})[0].values()] == ["running"])
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: [s.state for s in top.scan(str(folder), {})[0].values()] == ["stopped"])
    finally:
        process.kill()
        process.wait()
    done = run_top("--once", "--interval", 0.1)
    assert done.returncode == 0 and f" {process.pid}.0 " in done.stdout and " gone " in done.stdout
    assert f"left their files in {folder}: remove them" in done.stdout


def test_hostile_files_are_left_out_with_a_sentence(folder):
    contents = {
        "empty": ("", "is not JSON"),
        "cut": (json.dumps(VALID)[:100], "is not JSON"),
        "deep": ("[" * 60000, "is not JSON"),
        "digits": ('{"version": ' + "9" * 5000 + "}", "is not JSON"),
        "huge": ("x" * (top.MAX_BYTES + 1), "has more than"),
        "list": ("[1, 2]", "is not a JSON object"),
        "version": (json.dumps({**VALID, "version": 2}), "has another version"),
        "negative": (json.dumps({**VALID, "commands": -1}), "has no valid number commands"),
        "infinite": (json.dumps({**VALID, "time_ns": float("inf")}), "has no valid number time_ns"),
        "large": (json.dumps({**VALID, "pid": 1 << 64}), "has no valid number pid"),
        "text": (json.dumps({**VALID, "host": 5}), "has no valid text host"),
        "masked": (json.dumps({**VALID, "masked_ranks": ["x"]}), "has no valid list masked_ranks"),
    }
    for name, (text, _) in contents.items():
        (folder / f"{name}.json").write_text(text)
    (folder / "link.json").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    others = {"link": "cannot be read", "pipe": "is not a regular file", "folder": "is not a regular file"}
    if os.geteuid() == 0:
        (folder / "stranger.json").write_text(json.dumps(VALID))
        os.chown(folder / "stranger.json", 12345, 12345)
        others["stranger"] = "belongs to user 12345"
    found, notes = top.scan(str(folder), {})
    assert not found and len(notes) == len(contents) + len(others), notes
    for name, expected in [*((name, why) for name, (_, why) in contents.items()), *others.items()]:
        assert any(note.startswith(f"{name}.json ") and expected in note for note in notes), (name, notes)
    done = run_top("--once")
    assert done.returncode == 1 and "no communicator" in done.stderr
    # Nothing that is read moves the cursor of a terminal, or makes a line longer than the table.
    (folder / "escape.json").write_text(json.dumps({**VALID, "error": "\x1b[2J" + "e" * 500, "masked": 9, "masked_ranks": [7] * 900}))
    done = run_top("--once", "--interval", 0.1)
    assert done.returncode == 0 and "\x1b" not in done.stdout and "9 ranks" in done.stdout


def test_without_a_communicator_it_says_what_to_do(folder, monkeypatch):
    for arguments in ([], [folder / "missing"]):
        done = run_top("--once", *arguments)
        assert done.returncode == 1 and "start the program with UCCLEP_STATS_DIR=" in done.stderr
    monkeypatch.delenv("UCCLEP_STATS_DIR")
    assert "no folder is given" in run_top().stderr
    assert run_top("--interval", 0).returncode == 2
