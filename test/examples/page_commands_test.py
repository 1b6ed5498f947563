#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: page_commands_test.py SOURCE-TREE BUILD-TREE

Runs the commands of the pages as their readers would, on the host device. The blocks ```sh of a page are one session of a
shell, in a folder that looks like the source tree with its build. A block ```text after one has lines of its output, numbers
aside. `make` only checks its target, and `make install` installs the build tree. A block after <!-- needs: WORD.. --> does not
run: it is listed. Of all pages, what code names is there: targets of `make`, and files of the source tree.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NEEDS = {"gpu", "nic", "root", "network", "wheel"}
FOLDERS = "apps|bindings|docs|examples|include|perf|src|test|tools"
FENCE = re.compile(r"^(?:<!-- needs: (?P<needs>[^>]*) -->\n+)?```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
MAKE = """#!/bin/bash
set -euo pipefail
case " $* " in *" install "*) for word in "$@"; do case $word in PREFIX=*) exec tools/install.sh "${word#*=}" "$BUILD_TREE" ;; esac; done ;; esac
exec /usr/bin/make -n "$@" >/dev/null
"""


class Block:
    def __init__(self, page, match, text):
        self.kind, self.code = match["kind"], match["code"]
        self.needs = (match["needs"] or "").split()
        self.where = f"{page}:{text.count(chr(10), 0, match.start('code'))}"


def blocks(page, text):
    return [Block(page, match, text) for match in FENCE.finditer(text)]


def alike(line):
    return " ".join(re.sub(r"\d+(\.\d+)?", "0", line).split())


def session(found, folder, environment):
    """Faults of one page: of its commands, which run in one shell, and of its output."""
    marker = "-- page_commands_test --"
    shown = [block for i, block in enumerate(found) if block.kind == "sh" or (block.kind == "text" and i > 0 and found[i - 1].kind == "sh")]
    commands = [block for block in shown if block.kind == "sh" and not block.needs]
    script = "set -euo pipefail\n" + "".join(f"{block.code}\necho '{marker}'\necho '{marker}' >&2\n" for block in commands)
    done = subprocess.run(["timeout", "250", "bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    out, errors = done.stdout.split(marker), done.stderr.split(marker)
    if done.returncode != 0:
        failed = commands[min(len(out) - 1, len(commands) - 1)]
        return [f"{failed.where}: exit status {done.returncode}\n{out[-1]}{errors[-1]}"]
    printed = {block: {alike(line) for line in (text + more).splitlines()} for block, text, more in zip(commands, out, errors)}
    return [f"{block.where}: not printed: {line}" for last, block in zip(shown, shown[1:]) if block.kind == "text" and last in printed
            for line in block.code.splitlines() if alike(line) not in printed[last]]


def names(page, text, source, targets):
    """Faults of what code in the page names."""
    code = re.findall(r"`([^`\n]+)`", text) + [block.code for block in blocks(page, text) if block.kind in ("", "sh")]
    for part in code:
        for target in re.findall(r"(?:^|[;&|\s])make (?:[A-Z_]+=\S+ )*([a-z][\w-]*)", part, re.MULTILINE):
            if target not in targets:
                yield f"{page}: make {target}: there is no such target"
        for path in re.findall(rf"(?<![\w/.$-])((?:{FOLDERS})/[\w./-]*\w)(?![\w/*<{{])", part):
            if "NAME" not in path and not (source / path).exists() and not list(source.glob(path + "*")):
                yield f"{page}: {path}: there is no such file"


def linked_tree(source, build, folder):
    """The source tree by links, so that a page may write beside it."""
    for entry in source.iterdir():
        if entry.name not in ("build", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(build)


def notices(source, folder, environment):
    """A page that is wrong is a fault."""
    wrong = {"```sh\nfalse\n```": "exit status 1", "```sh\necho 1 row\n```\n\n```text\n2 rows\n```": "not printed: 2 rows",
             "```sh\necho 1 row\n```\n\n```text\n2 row\n```": None, "<!-- needs: gpu -->\n```sh\nfalse\n```": None}
    for text, expected in wrong.items():
        faults = session(blocks("page", text), folder, environment)
        assert (expected in faults[0]) if expected else not faults, (text, faults)
    assert list(names("page", "`make nothing`", source, {"all"})) and list(names("page", "`tools/nothing.sh`", source, {"all"}))
    assert not list(names("page", "`make all` and `tools/docs.sh`", source, {"all"}))


def main(source, build):
    source, build = Path(source).resolve(), Path(build).resolve()
    targets = set(re.findall(r"^([a-z][\w-]*):", (source / "Makefile").read_text(), re.MULTILINE))
    pages = [path for part in ("*.md", "docs/*.md", "perf/README.md") for path in sorted(source.glob(part))]
    texts = {str(path.relative_to(source)): path.read_text(encoding="utf-8") for path in pages}
    faults = [fault for page, text in texts.items() for fault in names(page, text, source, targets)]
    found = {page: blocks(page, text) for page, text in texts.items()}
    commands = [block for several in found.values() for block in several if block.kind == "sh"]
    skipped = collections.defaultdict(list)
    for block in commands:
        faults += [f"{block.where}: needs: {word}: expected one of {', '.join(sorted(NEEDS))}" for word in block.needs if word not in NEEDS]
        for word in block.needs:
            skipped[word].append(block.where)

    with tempfile.TemporaryDirectory() as work:
        tools = Path(work) / "bin"
        tools.mkdir()
        (tools / "make").write_text(MAKE)
        (tools / "make").chmod(0o755)
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "UCCLEP_DEVICE": "host", "BUILD_TREE": str(build)}
        environment.pop("LD_LIBRARY_PATH", None)  # Meson's names the build tree

        def run(page):
            folder = Path(work) / page.replace("/", "-")
            folder.mkdir()
            linked_tree(source, build, folder)
            return session(found[page], folder, environment)

        notices(source, Path(work), environment)
        with ThreadPoolExecutor(2) as pool:
            for several in pool.map(run, [page for page in found if any(block.kind == "sh" for block in found[page])]):
                faults += several

    ran = [block for block in commands if not block.needs]
    print(f"{len(ran)} blocks of commands ran, {len(commands) - len(ran)} did not")
    for word, where in sorted(skipped.items()):
        print(f"needs {word}: {len(where)}: {', '.join(where)}")
    print("\n".join(faults))
    return 1 if faults or not ran else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
