#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the library on purpose, one rule at a time, and asserts that a test notices.

Usage: tools/mutants.py [name...]      (files of test/mutants without .patch; default: all)

Each patch says which rule it breaks, and which cases of which test (as in `meson test --list`) have to fail:

    Rule: P6: ranks are added ascending, in LL.
    Test: conformance-wave32
    Cases: C44*                        (a Catch2 filter; nothing for a test of another kind)
    Environment: NAME=value ...        (optional)

The sources are copied to build-mutants/tree, where a build without GPU code follows them. The cases have to pass there without
any patch, and with each patch they have to fail, or not to end in time. A patch that no longer applies is an error.
"""
import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build-mutants"
TREE = WORK / "tree"
BUILD = TREE / "build"
PATCHES = ROOT / "test" / "mutants"
SETTINGS = ["-Dcuda=disabled", "-Dhip=disabled", "-Dpython=disabled", "-Doptimization=1", "-Ddebug=false"]
SECONDS = 120  # of the cases of one mutant
MEMORY = 12 << 30  # bytes of its addresses: a mutant may ask for any number of things


class Mutant:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        fields = dict(line.split(": ", 1) for line in path.read_text().split("\n\n")[0].splitlines() if ": " in line)
        self.rule, self.test = fields["Rule"], fields["Test"]
        self.cases = fields.get("Cases", "").strip()
        self.environment = dict(word.split("=", 1) for word in fields.get("Environment", "").split())

    def what_runs(self):
        return self.test, self.cases, tuple(sorted(self.environment.items()))


def run(*command, **options):
    return subprocess.run(command, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def checked(*command, **options):
    done = run(*command, **options)
    if done.returncode != 0:
        sys.exit(f"mutants.py: {' '.join(map(str, command))}:\n{done.stdout[-6000:]}")
    return done.stdout


def copy_sources():
    """Only what has changed since the last time, so that little is built again."""
    names = checked("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    for name in names:
        source, copy = ROOT / name, TREE / name
        if not source.is_file() or copy.is_file() and source.read_bytes() == copy.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


def introspected(what):
    return json.loads(checked("meson", "introspect", f"--{what}", BUILD))


def tests_of_build():
    """By name, each with the files to build for it: its program, and the libraries in the folders that it looks into."""
    tests = {test["name"]: test for test in introspected("tests")}
    libraries = [file for target in introspected("targets") if target["type"].startswith("shared ") for file in target["filename"]]
    for test in tests.values():
        folders = test["env"].get("LD_LIBRARY_PATH", "").split(":")
        files = [test["cmd"][0], *(file for file in libraries if os.path.dirname(file) in folders)]
        test["files"] = {os.path.relpath(file, BUILD) for file in files}
    return tests


def build(files):
    return run("ninja", "-C", BUILD, *sorted(files))


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def passes(test, cases, environment):
    """Whether the cases pass, and what they said."""
    command = [test["cmd"][0], cases, "-w", "NoTests"] if cases else test["cmd"]
    env = {**os.environ, **test["env"], **dict(environment)}
    env.pop("UCCLEP_TEST_REPORT", None)
    try:
        done = run(*command, env=env, cwd=BUILD, timeout=SECONDS, preexec_fn=limit_memory)
    except subprocess.TimeoutExpired:
        return False, f"not over after {SECONDS} s"
    if "No test cases matched" in done.stdout:
        sys.exit(f"mutants.py: there is no case {cases} in {test['name']}")
    return done.returncode == 0, done.stdout


def judge(mutant, test):
    """None, or what is wrong with the mutant."""
    if run("patch", "-p1", "--forward", "--fuzz=0", "--reject-file=-", "-i", mutant.path, cwd=TREE).returncode != 0:
        copy_sources()
        return "the patch does not apply any more"
    try:
        built = build(test["files"])
        if built.returncode != 0:
            return "it does not compile:\n" + built.stdout[-3000:]
        survived, said = passes(test, mutant.cases, mutant.environment.items())
        return f"nobody noticed ({mutant.test} \"{mutant.cases}\" passes):\n{said[-500:]}" if survived else None
    finally:
        copy_sources()


def main():
    wanted = sys.argv[1:]
    mutants = [Mutant(path) for path in sorted(PATCHES.glob("*.patch")) if not wanted or path.stem in wanted]
    if len(mutants) < len(wanted) or not mutants:
        sys.exit("mutants.py: there is no such patch in test/mutants")
    TREE.mkdir(parents=True, exist_ok=True)
    copy_sources()
    if not (BUILD / "build.ninja").exists():
        checked("meson", "setup", *SETTINGS, BUILD, TREE)
    tests = tests_of_build()
    for mutant in mutants:
        if mutant.test not in tests:
            sys.exit(f"mutants.py: {mutant.name}: there is no test {mutant.test}")
    built = build(set().union(*(tests[mutant.test]["files"] for mutant in mutants)))
    if built.returncode != 0:
        sys.exit("mutants.py: the library does not build:\n" + built.stdout[-6000:])

    def without_patch(what):
        return what, passes(tests[what[0]], what[1], what[2])

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for what, (good, said) in pool.map(without_patch, sorted({mutant.what_runs() for mutant in mutants})):
            if not good:
                sys.exit(f"mutants.py: {what[0]} \"{what[1]}\" fails without any patch:\n{said[-3000:]}")
    wrong = 0
    for mutant in mutants:
        problem = judge(mutant, tests[mutant.test])
        wrong += problem is not None
        print(f"{'FAILED ' if problem else 'noticed'}  {mutant.name}: {mutant.rule}" + (f"\n         {problem}" if problem else ""), flush=True)
    print(f"{len(mutants) - wrong} of {len(mutants)} mutants were noticed")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
