#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tools/test_summary.py BUILD-TREE|REPORT...

Counts what `meson test` ran in the trees and what the reports say, and ends with the line "N passed, M failed"; exits 1
if M > 0 or N = 0.

A Catch2 run counts each of its test cases once, from the report that test/support/report_listener.cpp wrote; any other
test counts one. A run that ended badly with no failed case (a crash, a time-out, a sanitizer's exit code) is one failure.
"""
import json
import os
import sys

GOOD = {"OK", "EXPECTEDFAIL"}


class Counts:
    def __init__(self):
        self.passed, self.failed, self.skipped = set(), {}, {}

    def add_report(self, run, lines):
        """One report: adds its cases, returns the case that was running when the process died, if one was."""
        running, ended = None, False
        for line in lines:
            event, _, text = line.rstrip("\n").partition("\t")
            name, _, reason = text.partition("\t")
            if event == "begin":
                running = name
                continue
            if event == "end":
                ended = True
            elif event == "passed":
                self.passed.add((run, name))
            elif event == "failed":
                self.failed[(run, name)] = reason or "failed"
            elif event == "skipped":
                self.skipped[(run, name)] = reason
            running = None
        return None if ended else running

    def add_report_file(self, path):
        """The report of a run without a tree: that of the Python tests."""
        run, before = os.path.basename(path), len(self.failed)
        if not os.path.exists(path):
            self.failed[(run, "the run")] = "no report"
            return
        with open(path, encoding="utf-8", errors="replace") as report:
            lines = report.readlines()
        running = self.add_report(run, lines)
        if lines[-1:] != ["end\t\n"] and len(self.failed) == before:
            self.failed[(run, running or "the run")] = "did not end"

    def add_run(self, tree, entry):
        run = f"{tree}/{entry['name'].split(' / ')[-1].split(':')[-1]}"
        result = entry["result"]
        path = entry["env"].get("UCCLEP_TEST_REPORT")
        if result == "SKIP":
            self.skipped[(run, "")] = "exit code 77"
            return
        if path is None:
            if result in GOOD:
                self.passed.add((run, ""))
            else:
                self.failed[(run, "")] = result.lower()
            return
        before = len(self.failed)
        running = None
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as report:
                running = self.add_report(run, report)
        elif result in GOOD:
            result = "no report"
        if result not in GOOD and len(self.failed) == before:
            where = f" in case '{running}'" if running else ""
            self.failed[(run, running or "the run")] = f"{result.lower()}, exit code {entry['returncode']}{where}"


def main(sources):
    counts = Counts()
    for tree in sources:
        if tree.endswith(".txt"):
            counts.add_report_file(tree)
            continue
        tree_name = os.path.basename(os.path.normpath(tree))
        log = os.path.join(tree, "meson-logs", "testlog.json")
        entries = []
        if os.path.exists(log):
            with open(log, encoding="utf-8") as lines:
                entries = [json.loads(line) for line in lines]
        if not entries:
            counts.failed[(tree_name, "the tree")] = "no test was run"
        for entry in entries:
            counts.add_run(tree_name, entry)
    for (run, name), reason in sorted(counts.skipped.items()):
        print(f"skipped: {run} {name}: {reason}")
    for (run, name), reason in sorted(counts.failed.items()):
        print(f"FAILED: {run} {name}: {reason}")
    if counts.skipped:
        print(f"{len(counts.skipped)} skipped")
    print(f"{len(counts.passed)} passed, {len(counts.failed)} failed")
    return 1 if counts.failed or not counts.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
