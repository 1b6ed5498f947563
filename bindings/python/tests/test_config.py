# SPDX-License-Identifier: Apache-2.0
"""python -m ucclep.config: a C program compiles, links and runs with what it prints."""
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ucclep

PROGRAM = """#include <ucclep/ucclep.h>
int main(void) {
  int version = 0;
  return ucclEpGetVersion(&version) != ucclEpSuccess || version != UCCLEP_VERSION;
}
"""


def config(*options):
    return subprocess.run([sys.executable, "-m", "ucclep.config", *options], check=False, capture_output=True, text=True)


@pytest.mark.skipif(not (Path(ucclep.__file__).parent / "include").is_dir(), reason="the package is no wheel: it has no headers")
def test_a_program_compiles_and_runs(tmp_path):
    source, program = tmp_path / "version.c", tmp_path / "version"
    source.write_text(PROGRAM)
    options = shlex.split(config("--cflags", "--libs").stdout)
    subprocess.run(["gcc", source, "-o", program, *options], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    subprocess.run([program], check=True, env=environment)


def test_without_a_question():
    done = config()
    assert done.returncode == 2 and "expected --cflags, --libs, or both" in done.stderr
