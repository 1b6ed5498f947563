#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tools/catch_cases.py BUILD-TREE [FILTER]

Lists the Catch2 cases of each run of a configured tree, as Meson's files and the sources say: nothing has to be built. A line is
the tier, the run and the case. FILTER is a Catch2 filter by names and tags, such as 'masks*' or '[reduced]'.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

TIERS = ("more", "long", "nodes", "soak", "check-only")  # suites of Meson; what is in none of them belongs to `make test`
LITERALS = r'((?:\s*"(?:[^"\\]|\\.)*")+)'


def joined(literals):
    """The text of adjacent string literals."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"').replace("\\\\", "\\")


@functools.cache
def cases_of(path):
    """The cases in a source file: pairs of name and set of tags."""
    found = re.findall(r"^TEST_CASE\(" + LITERALS + r"(?:\s*,(?=\s*\")" + LITERALS + ")?", pathlib.Path(path).read_text(), re.MULTILINE)
    return [(joined(name), tags_of(joined(tags))) for name, tags in found]


def tags_of(text):
    """As Catch2 sees them: in lower case, and "." for what is hidden."""
    tags = set()
    for tag in re.findall(r"\[([^\]]*)\]", text.lower()):
        if tag.startswith(".") or tag == "!hide":
            tags.add(".")
        if tag.strip(".!"):
            tags.add(tag.lstrip("."))
    return tags


class Filter:
    """A filter of Catch2: groups, of which one has to match; all patterns of a group have to."""

    PATTERN = re.compile(r'\s*(~?)(?:\[([^\]]*)\]|"((?:[^"\\]|\\.)*)"|((?:[^\[,"\\~]|\\.)(?:[^\[,"\\]|\\.)*))')

    def __init__(self, text):
        self.groups, position, group = [], 0, []
        while position < len(text):
            if text[position] == ",":
                self.groups.append(group)
                group, position = [], position + 1
                continue
            found = self.PATTERN.match(text, position)
            if not found:
                if text[position:].strip():
                    raise ValueError(f"not a filter of Catch2: {text}")
                break
            negated, tag, quoted, name = found.groups()
            position = found.end()
            if tag is not None:
                group.append((bool(negated), "tag", "." if tag == "!hide" else tag.lower()))
            elif (name or quoted or "").strip():
                group.append((bool(negated), "name", re.sub(r"\\(.)", r"\1", name if quoted is None else quoted).strip().lower()))
        self.groups.append(group)

    def matches(self, name, tags):
        return any(all(negated != holds(kind, text, name, tags) for negated, kind, text in group) for group in self.groups)


def holds(kind, text, name, tags):
    if kind == "tag":
        return text in tags
    name, part = name.strip().lower(), text.strip("*")
    if text.startswith("*") and text.endswith("*") and len(text) > 1:
        return part in name
    if text.startswith("*"):
        return name.endswith(part)
    return name.startswith(part) if text.endswith("*") else name == part


class Run:
    """A test of Meson: its tier, and the cases that it runs; None for what is not of Catch2."""

    def __init__(self, entry, sources):
        self.name = entry["name"]
        suites = {suite.split(":")[-1] for suite in entry["suite"]}
        self.tier = next((tier for tier in TIERS if tier in suites), "test")
        self.environment = entry["env"]
        self.command = entry["cmd"]
        self.cases = None
        if "UCCLEP_TEST_REPORT" in entry["env"]:
            runs = Filter(entry["cmd"][-1])
            program = entry["env"].get("UCCLEP_TEST_PROGRAM", entry["cmd"][0])
            self.cases = [case for source in sources.get(program, []) for case in cases_of(source) if runs.matches(*case)]


def introspected(tree, what):
    done = subprocess.run(["meson", "introspect", f"--{what}", tree], text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def parts_of(file):
    """The C++ sources that a file is compiled from: those that Meson has joined, or itself."""
    path = pathlib.Path(file)
    if path.suffix != ".cpp" or not path.exists():
        return []
    return re.findall(r"^#include<(.*)>$", path.read_text(), re.MULTILINE) if "-unity" in path.name else [file]


def inputs_of(ninja):
    """What each file of a build.ninja is made of, by its name."""
    made_of = {}
    for line in ninja.replace("$\n", "").splitlines():
        if line.startswith("build "):
            outputs, _, rest = line[len("build "):].replace("$ ", "\0").replace("$:", "\1").partition(": ")
            words = [word.replace("\0", " ").replace("\1", ":") for word in rest.split(" || ")[0].split(" ")[1:]]
            for output in outputs.split(" | ")[0].split(" "):
                made_of[output.replace("\0", " ").replace("\1", ":")] = [word for word in words if word not in ("", "|")]
    return made_of


def sources_of(file, made_of, tree):
    """The C++ sources in a program: its own, and those of the objects and static libraries that it links."""
    found, files, seen = [], [file], set()
    while files:
        file = files.pop()
        if file in seen:
            continue
        seen.add(file)
        if file.endswith(".cpp"):
            found += parts_of(tree / file)
        if file not in made_of or file.endswith(".cpp"):
            continue
        files += [name for name in made_of[file] if name.endswith((".cpp", ".o", ".a"))]
    paths = {os.path.normpath(tree / source) for source in found}
    return sorted(path for path in paths if os.path.exists(path))  # not what the build has yet to write


def runs_of(tree):
    """The runs of a configured tree by name."""
    tree = pathlib.Path(tree).resolve()
    made_of = inputs_of((tree / "build.ninja").read_text())
    sources, runs = {}, {}
    for entry in introspected(tree, "tests"):
        program = entry["env"].get("UCCLEP_TEST_PROGRAM", entry["cmd"][0])
        if "UCCLEP_TEST_REPORT" in entry["env"] and program not in sources:
            sources[program] = sources_of(os.path.relpath(program, tree), made_of, tree)
        runs[entry["name"]] = Run(entry, sources)
    return runs


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    wanted = Filter(sys.argv[2]) if len(sys.argv) == 3 else None
    for run in sorted(runs_of(sys.argv[1]).values(), key=lambda run: (run.tier, run.name)):
        if run.cases is None and not wanted:
            print(f"{run.tier}\t{run.name}")
        for name, tags in run.cases or []:
            if not wanted or wanted.matches(name, tags):
                print(f"{run.tier}\t{run.name}\t{name}")


if __name__ == "__main__":
    main()
