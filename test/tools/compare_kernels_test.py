#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: compare_kernels_test.py TOOLS C-COMPILER [COMPILER-FOR-AMD SOURCE]

Tests of compare_kernels.py: it has to notice what changes a kernel, and nothing else.
"""
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS, C_COMPILER, *AMD = sys.argv[1:]
sys.path.insert(0, TOOLS)
import compare_kernels  # noqa: E402

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 dyn[];\n"
COLD = """.func  (.param .b32 func_retval0) _Z4coldi(
\t.param .b32 _Z4coldi_param_0
)
{
\t.shared .align 4 .b8 _ZZ4coldiE1s[16];
\tst.shared.u32 \t[_ZZ4coldiE1s], 1;
\tret;
}
"""


def entry(name, ordinal, limit="3", call="_Z4coldi"):
    return f"""\t// .globl\tucclep_{name}
.visible .entry ucclep_{name}(
\t.param .align 8 .b8 ucclep_{name}_param_0[16]
)
.maxntid 512, 1, 1
{{
\t.loc\t1 {ordinal} 3
\tld.param.u32 \t%r1, [ucclep_{name}_param_0+8];
\tsetp.lt.s32 \t%p1, %r1, {limit};
\t@%p1 bra \t$L__BB{ordinal}_3;
\t{{ // callseq {ordinal}, 0
\tcall.uni (retval0), \n\t{call}, \n\t(\n\tparam0\n\t);
\t}} // callseq {ordinal}
$L__BB{ordinal}_3:
\tret;
}}
"""


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def compare(self, old, new, *options):
        done = subprocess.run([os.path.join(TOOLS, "compare_kernels.py"), *options, old, new], stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def same(self, count, old, new, *options):
        self.assertEqual(self.compare(old, new, *options), (0, [f"{count} kernels identical, 0 differ"]))

    def differs(self, sentence, old, new, *options):
        status, lines = self.compare(old, new, *options)
        self.assertEqual(status, 1)
        self.assertIn(sentence, lines[0])
        self.assertEqual(len(lines), 2)
        return lines[-1]


class Ptx(Files):
    def setUp(self):
        super().setUp()
        self.old = self.write("old.ptx", HEADER + COLD + entry("a", 1) + entry("b", 2))

    def test_order_and_numbers(self):
        self.same(2, self.old, self.write("new.ptx", HEADER + entry("b", 7) + COLD + entry("a", 9)))

    def test_names_of_functions_and_variables(self):
        names = {"_Z4coldi": "_ZN39_GLOBAL__N__58a0bd7d_6_t_cu_3d8bb0d84coldEi", "_ZZ4coldiE1s": "_ZZ6freezeiE1s"}
        new = HEADER + COLD + entry("a", 1) + entry("b", 2)
        for before, after in names.items():
            new = new.replace(before, after)
        self.same(2, self.old, self.write("new.ptx", new))
        self.differs("ptx: a differs", self.old, self.write("other.ptx", HEADER + COLD + COLD.replace("_Z4coldi", "_Z5otheri").replace("], 1", "], 2")
                                                            + entry("a", 1, call="_Z5otheri") + entry("b", 2)))

    def test_an_instruction(self):
        last = self.differs("ptx: b differs, line 7: setp.lt.s32 %p1, %r1, 3; | setp.lt.s32 %p1, %r1, 4;", self.old,
                            self.write("new.ptx", HEADER + COLD + entry("a", 1) + entry("b", 2, limit="4")))
        self.assertEqual(last, "1 kernels identical, 1 differ")

    def test_a_function_that_a_kernel_calls(self):
        new = HEADER + COLD.replace("s], 1", "s], 2") + entry("a", 1) + entry("b", 2, call="_Z5otheri")
        old = HEADER + COLD + entry("a", 1) + entry("b", 2, call="_Z5otheri")
        self.differs("ptx: a differs", self.write("old.ptx", old), self.write("new.ptx", new))

    def test_kernels_that_come_and_go(self):
        self.differs("ptx: c is new", self.old, self.write("new.ptx", HEADER + COLD + entry("a", 1) + entry("b", 2) + entry("c", 3)))
        fewer = self.write("fewer.ptx", HEADER + COLD + entry("a", 1))
        self.differs("ptx: b is gone", self.old, fewer)
        self.same(1, self.old, fewer, "--gone", "b")
        self.differs("ptx: b is still there", self.old, self.old, "--gone", "b")

    def test_renamed(self):
        new = self.write("new.ptx", HEADER + COLD + entry("a", 1) + entry("long_name", 2))
        self.same(2, self.old, new, "--renamed", "b=long_name")

    def test_trees(self):
        code = compare_kernels.CODE
        self.write(f"old/{code}/sm_90a.ptx", HEADER + COLD + entry("a", 1) + entry("b", 2))
        self.write(f"new/{code}/sm_90a-ll.ptx", HEADER + COLD + entry("a", 0))
        self.write(f"new/{code}/sm_90a-ht.ptx", HEADER + COLD + entry("b", 0))
        self.same(2, f"{self.folder}/old", f"{self.folder}/new")
        self.write(f"new/{code}/sm_90a-ht.ptx", HEADER + COLD + entry("b", 0, limit="4"))
        self.differs("sm_90a: b differs", f"{self.folder}/old", f"{self.folder}/new")


class Exports(Files):
    def library(self, name, text):
        path = os.path.join(self.folder, name + ".so")
        subprocess.run([C_COMPILER, "-shared", "-o", path, self.write(name + ".c", text)], check=True)
        return path

    def test_symbols(self):
        old = self.library("old", "int one(void) { return 1; } int two;")
        self.same(0, old, old)
        self.differs("exports: two is gone", old, self.library("new", "int one(void) { return 1; }"))


@unittest.skipUnless(AMD, "no compiler for AMD")
class Amd(Files):
    def code_object(self, name, *arguments):
        path = os.path.join(self.folder, name + ".hsaco")
        with open(AMD[-1], encoding="utf-8") as file:
            text = file.read().replace("void trial(", "LIMITS void trial(").replace("x()", "x() + MORE")
        subprocess.run([*AMD[:-1], "-DLIMITS=", "-DMORE=0", *arguments, "-o", path, self.write(name + ".hip", text)], check=True)
        return path

    def test_code_and_resources(self):
        old = self.code_object("old")
        self.same(1, old, self.code_object("same"))
        self.differs("hsaco: trial differs", old, self.code_object("instruction", "-UMORE", "-DMORE=1"))
        self.differs("hsaco: trial differs", old, self.code_object("limits", "-ULIMITS", "-DLIMITS=__attribute__((amdgpu_flat_work_group_size(64, 512)))"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
