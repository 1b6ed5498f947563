#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: summary_test.py REPORT-SAMPLE TOOLS-FOLDER: tests how make test counts."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SAMPLE, TOOLS = sys.argv[1:3]


class Summary(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.entries = {}

    def run_sample(self, tree, name, tags):
        report = os.path.join(self.folder.name, f"{tree}-{name}.tsv")
        done = subprocess.run([SAMPLE, "-w", "NoTests", tags], env={**os.environ, "UCCLEP_TEST_REPORT": report},
                              stdout=subprocess.DEVNULL)
        self.add(tree, name, "OK" if done.returncode == 0 else "FAIL", done.returncode, report)

    def add(self, tree, name, result, returncode=0, report=None):
        env = {} if report is None else {"UCCLEP_TEST_REPORT": report}
        self.entries.setdefault(tree, []).append(
            {"name": f"ucclep:suite / {name}", "result": result, "returncode": returncode, "env": env})

    def summary(self, *options):
        trees = []
        for tree, entries in self.entries.items():
            logs = os.path.join(self.folder.name, tree, "meson-logs")
            os.makedirs(logs, exist_ok=True)
            with open(os.path.join(logs, "testlog.json"), "w", encoding="utf-8") as log:
                log.writelines(json.dumps(entry) + "\n" for entry in entries)
            trees.append(os.path.join(self.folder.name, tree))
        done = subprocess.run([os.path.join(TOOLS, "test_summary.py"), *options, *trees], stdout=subprocess.PIPE, text=True)
        return done.returncode, done.stdout.splitlines()

    def test_cases_count_and_not_sections_or_processes(self):
        self.run_sample("build", "sample", "[good]")
        code, lines = self.summary()
        self.assertEqual((code, lines[-2:]), (0, ["1 skipped", "3 passed, 0 failed"]))
        self.assertIn("no such device", lines[0])

    def test_a_case_counts_once_per_run(self):
        self.run_sample("build", "sample", "[good]")
        self.run_sample("build-tsan", "sample", "[good]")
        self.assertEqual(self.summary()[1][-1], "6 passed, 0 failed")

    def test_a_run_that_says_that_it_was_skipped(self):
        self.run_sample("build", "sample", "[good]")
        self.add("build", "namespaces", "SKIP", 77, os.path.join(self.folder.name, "none.tsv"))
        code, lines = self.summary()
        self.assertEqual((code, lines[-2:]), (0, ["2 skipped", "3 passed, 0 failed"]))
        self.assertTrue(any("namespaces" in line and "exit code 77" in line for line in lines))

    def test_failed_cases_are_named(self):
        self.run_sample("build", "sample", "[bad],[good]")
        code, lines = self.summary()
        self.assertEqual((code, lines[-1]), (1, "3 passed, 2 failed"))
        self.assertTrue(any("FAILED" in line and "throws after a skip" in line for line in lines))
        self.assertTrue(any("FAILED" in line and "fails: " in line and "1 == 2" in line for line in lines))

    def test_a_killed_run_names_its_case(self):
        self.run_sample("build", "sample", "[killed]")
        code, lines = self.summary()
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed"))
        self.assertTrue(any("FAILED" in line and "is killed" in line for line in lines))

    def test_a_bad_exit_code_after_good_cases_is_a_failure(self):
        self.run_sample("build", "sample", "[good]")
        self.entries["build"][0].update(result="FAIL", returncode=66)
        self.assertEqual(self.summary()[1][-1], "3 passed, 1 failed")

    def test_a_missing_report_is_a_failure(self):
        self.add("build", "sample", "OK", report=os.path.join(self.folder.name, "none.tsv"))
        self.assertEqual(self.summary()[1][-1], "0 passed, 1 failed")

    def test_plain_tests_count_one(self):
        for result in ("OK", "EXPECTEDFAIL", "SKIP", "FAIL", "TIMEOUT"):
            self.add("build", result, result)
        code, lines = self.summary()
        self.assertEqual((code, lines[-2:]), (1, ["1 skipped", "2 passed, 2 failed"]))

    def test_reports_without_a_tree_count_too(self):
        self.run_sample("build", "sample", "[good]")
        report = os.path.join(self.folder.name, "python.txt")
        for lines, last in {"passed\ta\nskipped\tb\tno GPU\nend\t\n": "4 passed, 0 failed",
                            "passed\ta\nfailed\tb\nend\t\n": "4 passed, 1 failed",
                            "passed\ta\nbegin\tb\n": "4 passed, 1 failed"}.items():
            with open(report, "w", encoding="utf-8") as file:
                file.write(lines)
            self.assertEqual(self.summary(report)[1][-1], last)
        os.remove(report)
        self.assertEqual(self.summary(report)[1][-1], "3 passed, 1 failed")

    def test_nothing_run_is_a_failure(self):
        self.add("build", "only", "SKIP")
        code, lines = self.summary()
        self.assertEqual((code, lines[-1]), (1, "0 passed, 0 failed"))

    def test_a_tree_without_results_is_a_failure(self):
        self.run_sample("build", "sample", "[good]")
        self.entries["build-tsan"] = []
        code, lines = self.summary()
        self.assertEqual((code, lines[-1]), (1, "3 passed, 1 failed"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
