#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: mutants_test.py TOOLS-FOLDER: tests what tools/mutants.py --apply-only says of patches, and how cases are found in sources."""
import pathlib
import sys
import tempfile
import unittest

TOOLS = sys.argv.pop(1)
sys.path.insert(0, TOOLS)
import catch_cases  # noqa: E402
import mutants  # noqa: E402

CASES = [("C1 rows, and no others", {"process", "reduced"}), ("C2 zones", {"process"}), ("hidden", {"."}), ("takes long", {"long"})]


def matching(text):
    return [name for name, tags in CASES if catch_cases.Filter(text).matches(name, tags)]


class Filters(unittest.TestCase):
    def test_tags(self):
        self.assertEqual(matching("[process]"), ["C1 rows, and no others", "C2 zones"])
        self.assertEqual(matching("[process]~[reduced]"), ["C2 zones"])
        self.assertEqual(matching("~[.]~[long]~[.]"), ["C1 rows, and no others", "C2 zones"])
        self.assertEqual(matching("[Reduced],[long]"), ["C1 rows, and no others", "takes long"])

    def test_names(self):
        self.assertEqual(matching("C*"), ["C1 rows, and no others", "C2 zones"])
        self.assertEqual(matching("*zones"), ["C2 zones"])
        self.assertEqual(matching("*ROWS*"), ["C1 rows, and no others"])
        self.assertEqual(matching("C2 zones"), ["C2 zones"])
        self.assertEqual(matching("C2"), [])
        self.assertEqual(matching("C1 rows\\, and*"), ["C1 rows, and no others"])
        self.assertEqual(matching('"C2 zones","hidden"'), ["C2 zones", "hidden"])
        self.assertEqual(matching("C*[reduced]"), ["C1 rows, and no others"])

    def test_what_is_no_filter(self):
        with self.assertRaises(ValueError):
            catch_cases.Filter("[open")


class Sources(unittest.TestCase):
    def test_cases_are_found(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write('TEST_CASE("one") {}\nTEST_CASE("two \\"parts\\" "\n          "joined",\n          "[A][.slow]") {}\n// TEST_CASE("none")\n')
            file.flush()
            self.assertEqual(catch_cases.cases_of(file.name), [("one", set()), ('two "parts" joined', {"a", ".", "slow"})])


    def test_sources_of_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            for name in "own.cpp", "lib a.cpp", "one.cpp", "other.cpp":
                (tree / name).write_text("")
            (tree / "p-unity0.cpp").write_text(f"#include<{tree}/one.cpp>\n#include<{tree}/made.cpp>\n")
            ninja = ("build own.o: cpp_COMPILER own.cpp || made.hpp\nbuild p.o: cpp_COMPILER p-unity0.cpp\nbuild a.o: cpp_COMPILER lib$ a.cpp\n"
                     "build lib.a: STATIC_LINKER a.o\nbuild other: cpp_LINKER other.o\nbuild program: cpp_LINKER own.o $\n p.o | lib.a shared.so\n")
            found = catch_cases.sources_of("program", catch_cases.inputs_of(ninja), tree)
            self.assertEqual([pathlib.Path(path).name for path in found], ["lib a.cpp", "one.cpp", "own.cpp"])


class Runs(unittest.TestCase):
    def run_of(self, suites, filter_="~[.]"):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write('TEST_CASE("a rule", "[reduced]") {}\nTEST_CASE("another") {}\n')
            file.flush()
            entry = {"name": "run", "suite": suites, "env": {"UCCLEP_TEST_REPORT": "x"}, "cmd": ["program", "-w", "NoTests", filter_]}
            return catch_cases.Run(entry, {"program": [file.name]})

    def test_tiers(self):
        self.assertEqual(self.run_of(["ucclep"]).tier, "test")
        self.assertEqual(self.run_of(["ucclep:check"]).tier, "test")
        for suites, tier in (["ucclep:more"], "more"), (["ucclep:long"], "long"), (["ucclep:check", "ucclep:check-only"], "check-only"):
            self.assertEqual(self.run_of(suites).tier, tier)

    def test_cases_of_the_filter(self):
        self.assertEqual([name for name, _ in self.run_of([], "[reduced]~[.]").cases], ["a rule"])


class Patches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "code").write_text("one\ntwo\n")

    def doubt(self, runs, cases="a rule", line="two"):
        path = self.root / "p0-rule.patch"
        path.write_text(f"Rule: P0: two.\nTest: run\nCases: {cases}\n\n--- a/code\n+++ b/code\n@@ -1,2 +1,2 @@\n one\n-{line}\n+three\n")
        return mutants.doubt(mutants.Mutant(path), runs, self.root)

    def run_of(self, tier, *cases):
        run = catch_cases.Run({"name": "run", "suite": [], "env": {}, "cmd": ["program"]}, {})
        run.tier, run.cases = tier, [(name, set()) for name in cases] or None
        return {"run": run}

    def test_a_good_patch(self):
        self.assertIsNone(self.doubt(self.run_of("test", "a rule", "another")))
        self.assertEqual((self.root / "code").read_text(), "one\ntwo\n")

    def test_a_patch_that_does_not_apply(self):
        self.assertIn("does not apply", self.doubt(self.run_of("test", "a rule"), line="zwei"))

    def test_what_it_names_does_not_run(self):
        self.assertIn("there is no test run", self.doubt({}))
        self.assertIn("of the tier more", self.doubt(self.run_of("more", "a rule")))
        self.assertIn("runs no case", self.doubt(self.run_of("test", "another")))
        self.assertIn("has no cases", self.doubt(self.run_of("test")))

    def test_a_test_without_cases(self):
        self.assertIsNone(self.doubt(self.run_of("test"), cases=""))

    def test_parts_are_all_and_disjoint(self):
        paths = [self.root / f"p{number}.patch" for number in range(7)]
        parts = [mutants.chosen(paths, [], (number, 3)) for number in (1, 2, 3)]
        self.assertEqual(sorted(sum(parts, [])), paths)
        self.assertEqual(mutants.chosen(paths, ["p2", "p5"], (2, 2)), [paths[5]])
        self.assertEqual(mutants.shard("2/3"), (2, 3))
        with self.assertRaises(ValueError):
            mutants.shard("4/3")


if __name__ == "__main__":
    unittest.main()
