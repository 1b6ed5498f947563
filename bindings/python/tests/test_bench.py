# SPDX-License-Identifier: Apache-2.0
"""python -m ucclep.bench times every operation and says what Python costs."""
import json
import os
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


SMALL = "--ranks 2 --hidden 256 --experts 8 --topk 2 --ll-tokens 4 --ht-tokens 16 --iterations 1".split()


def run_tool(name, *arguments, **settings):
    """The tool's end: exit code and what it says on standard error."""
    done = subprocess.run([sys.executable, "-m", f"ucclep.{name}", *arguments], stderr=subprocess.PIPE, text=True,
                          timeout=200, **settings)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize("option, value", [("--ranks", "0"), ("--mode", "x"), ("--ll-tokens", "4,0"), ("--ht-tokens", "-1"),
                                           ("--hidden", "0"), ("--experts", "x"), ("--topk", "9"), ("--warmup", "-1"),
                                           ("--iterations", "0")])
def test_a_bad_option_is_named(option, value):
    code, errors = run_tool("bench", *SMALL, option, value, stdout=subprocess.DEVNULL)
    assert code == 2 and f"argument {option}: " in errors


@pytest.mark.parametrize("name, arguments", [("bench", SMALL), ("info", [])])
def test_what_cannot_be_printed_is_a_failure(name, arguments, device):
    if device != "host":
        pytest.skip("its ranks are threads on the host device")
    with open("/dev/full", "w", encoding="utf-8") as full:
        code, errors = run_tool(name, *arguments, stdout=full)
    assert (code, errors) == (1, f"ucclep.{name}: standard output cannot be written: No space left on device")
    code, errors = run_tool(name, *arguments, preexec_fn=lambda: os.close(1))
    assert (code, errors) == (1, f"ucclep.{name}: standard output is closed")


@pytest.mark.parametrize("name", ["info", "bench"])
def test_a_library_that_is_not_there_is_a_sentence(name):
    done = subprocess.run([sys.executable, "-m", f"ucclep.{name}"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "UCCLEP_LIBRARY": "/nonexistent.so"})
    assert done.returncode == 1
    assert done.stderr.startswith("ucclep: error: libucclep.so cannot be loaded: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["bench", "info"])
def test_help_and_no_device(name, device):
    done = subprocess.run([sys.executable, "-m", f"ucclep.{name}", "--help"], check=True, capture_output=True, text=True,
                          timeout=60)
    assert f"python -m ucclep.{name}" in done.stdout
    if device != "host":
        pytest.skip("there is a device")
    done = subprocess.run([sys.executable, "-m", f"ucclep.{name}", *(["--ranks", "1"] if name == "bench" else [])],
                          capture_output=True, text=True, timeout=200, env={**os.environ, "UCCLEP_DEVICE": "nosuchdevice"})
    assert done.returncode == 1 and "UCCLEP_DEVICE" in done.stdout + done.stderr and "Traceback" not in done.stderr
