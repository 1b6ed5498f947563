#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the library on purpose, one rule at a time, and asserts that a test notices.

Usage: tools/mutants.py [--shard I/N] [--apply-only] [name...]      (files of test/mutants without .patch; default: all)

--shard I/N     takes the Ith of N parts of the patches, I from 1
--apply-only    builds and runs nothing: checks that each patch applies, and that `make test` runs the cases that it names

Each patch says which rule it breaks, and which cases of which test (as in `meson test --list`) have to fail:

    Rule: P6: ranks are added ascending, in LL.
    Test: conformance-wave32
    Cases: C44*                        (a Catch2 filter; nothing for a test of another kind)
    Environment: NAME=value ...        (optional)

The sources are copied to build-mutants/tree, where a build without GPU code follows them. The cases have to pass there without
any patch, and with each patch they have to fail, or not to end in time. A patch that no longer applies is an error, and so is one
whose cases are in no run of `make test`.
"""
import argparse
import concurrent.futures
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import catch_cases

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build-mutants"
TREE = WORK / "tree"
BUILD = TREE / "build"
LISTING = WORK / "listing"  # a tree that is configured and never built
PATCHES = ROOT / "test" / "mutants"
SETTINGS = ["-Dcuda=disabled", "-Dhip=disabled", "-Dpython=disabled", "-Doptimization=0", "-Ddebug=false"]
# What a patch changes is changed back, and need not be compiled again where there is ccache.
CCACHE = "ccache " if shutil.which("ccache") else ""
COMPILERS = {"CC": CCACHE + "clang-19", "CXX": CCACHE + "clang++-19"}  # without optimisation, kernels take it 8 s
SECONDS = 120  # of the cases of one mutant
MEMORY = 12 << 30  # bytes of its addresses: a mutant may ask for any number of things


class Mutant:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        text = path.read_text()
        fields = dict(line.split(": ", 1) for line in text.split("\n\n")[0].splitlines() if ": " in line)
        self.files = [line.removeprefix("+++ b/") for line in text.splitlines() if line.startswith("+++ ")]
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


def tests_of_build():
    """By name, each with the files to build for it: its program, and the libraries in the folders that it looks into."""
    tests = {test["name"]: test for test in catch_cases.introspected(BUILD, "tests")}
    libraries = [file for target in catch_cases.introspected(BUILD, "targets") if target["type"].startswith("shared ") for file in target["filename"]]
    for test in tests.values():
        folders = test["env"].get("LD_LIBRARY_PATH", "").split(":")
        files = [test["cmd"][0], *(file for file in libraries if os.path.dirname(file) in folders)]
        test["files"] = {os.path.relpath(file, BUILD) for file in files}
    return tests


def build(files):
    # By default ccache keeps nothing that was compiled with a precompiled header.
    return run("ninja", "-C", BUILD, *sorted(files), env={"CCACHE_SLOPPINESS": "pch_defines,time_macros", **os.environ})


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


def doubt(mutant, runs, root=ROOT):
    """What is wrong with the patch or with what it names, or None. Nothing is built."""
    applied = run("patch", "-p1", "--forward", "--fuzz=0", "--dry-run", "--reject-file=-", "-i", mutant.path, cwd=root)
    if applied.returncode != 0:
        return f"the patch does not apply any more:\n{applied.stdout}"
    named = runs.get(mutant.test)
    if named is None:
        return f"there is no test {mutant.test}"
    if named.tier != "test":
        return f"make test does not run {mutant.test}: it is of the tier {named.tier}"
    if (named.cases is None) != (mutant.cases == ""):
        return f"{mutant.test} has {'no ' if named.cases is None else ''}cases of Catch2: \"{mutant.cases}\""
    wanted = catch_cases.Filter(mutant.cases)
    if named.cases is not None and not any(wanted.matches(*case) for case in named.cases):
        return f"{mutant.test} runs no case \"{mutant.cases}\" in make test"
    return None


def doubts(mutants):
    """Prints what is wrong with the patches; how many are wrong."""
    checked("meson", "setup", *SETTINGS, *(["--wipe"] if (LISTING / "build.ninja").exists() else []), LISTING, ROOT)
    runs = catch_cases.runs_of(LISTING)
    wrong = 0
    for mutant in mutants:
        problem = doubt(mutant, runs)
        wrong += problem is not None
        if problem:
            print(f"{mutant.name}: {problem}")
    return wrong


def shard(text):
    number, of = text.split("/")
    if not 1 <= int(number) <= int(of):
        raise ValueError(text)
    return int(number), int(of)


def chosen(paths, names, part):
    """The patches of these names, or all, and of them one part of several."""
    number, of = part
    return [path for path in sorted(paths) if not names or path.stem in names][number - 1::of]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--shard", type=shard, default=(1, 1))
    parser.add_argument("--apply-only", action="store_true")
    options = parser.parse_args()
    paths = list(PATCHES.glob("*.patch"))
    unknown = set(options.names) - {path.stem for path in paths}
    if unknown:
        sys.exit(f"mutants.py: there is no {sorted(unknown)[0]}.patch in test/mutants")
    mutants = [Mutant(path) for path in chosen(paths, options.names, options.shard)]
    mutants.sort(key=lambda mutant: mutant.files)  # of one file in a row: each changes back what depends on it once
    if not mutants:
        sys.exit("mutants.py: there is no patch in this part of test/mutants")
    if options.apply_only:
        return doubts(mutants) != 0
    TREE.mkdir(parents=True, exist_ok=True)
    copy_sources()
    if not (BUILD / "build.ninja").exists():
        checked("meson", "setup", *SETTINGS, BUILD, TREE, env={**os.environ, **COMPILERS})
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
