#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of gpu_resources.py: each thing that it forbids must be found."""
import unittest

from gpu_resources import Kernel, fused_sums, non_coherent_loads, parse, problems

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'ucclep_fat' for 'sm_90a'
ptxas info    : Function properties for ucclep_fat
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 16 bytes stack, 1040 bytes smem
ptxas info    : Compiling entry function 'ucclep_good' for 'sm_90a'
ptxas info    : Function properties for ucclep_good
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers
ptxas info    : Compile time = 1.5 ms
""".splitlines()

REMARK = "/x/a.cpp:7:1: remark: {} [-Rpass-analysis=kernel-resource-usage]"
CLANG = [REMARK.format(text) for text in (
    "Function Name: ucclep_good", "    SGPRs: 12", "    VGPRs: 100", "    AGPRs: 20", "    ScratchSize [bytes/lane]: 4",
    "    Dynamic Stack: False", "    Occupancy [waves/SIMD]: 8", "    SGPRs Spill: 1", "    VGPRs Spill: 2",
    "    LDS Size [bytes/block]: 64")]

TABLE = {"registers": {"gfx942": 128, "sm_80": 128, "sm_90a": 128}, "static_shared_bytes": 128, "scalar_spills": 0, "spilled_bytes": {"sm_80": 8}, "kernels": {}}


class Parsing(unittest.TestCase):
    def test_ptxas(self):
        self.assertEqual(parse("sm_90a", PTXAS), {"fat": Kernel(168, 20, 16, 1040), "good": Kernel(40, 0, 0, 0)})

    def test_clang(self):
        self.assertEqual(parse("gfx942", CLANG), {"good": Kernel(120, 3, 4, 64)})


class Limits(unittest.TestCase):
    def found(self, kernels, expected=("good",)):
        return "\n".join(problems({"gfx942": kernels}, TABLE, set(expected)))

    def test_good(self):
        self.assertEqual(self.found({"good": Kernel(128, 0, 0, 128)}), "")

    def test_each_limit(self):
        self.assertIn("129 registers", self.found({"good": Kernel(129)}))
        self.assertIn("uses 0 registers", self.found({"good": Kernel()}))
        self.assertIn("spills", self.found({"good": Kernel(1, 1)}))
        self.assertIn("stack frame of 8 bytes", self.found({"good": Kernel(1, 0, 8)}))
        self.assertIn("129 bytes of static shared", self.found({"good": Kernel(1, 0, 0, 129)}))

    def test_granted_spills(self):
        table = TABLE | {"kernels": {"good": {"scalar_spills": 16}}}
        self.assertEqual(list(problems({"gfx942": {"good": Kernel(1, 16, 8)}}, table, {"good"})), [])
        self.assertIn("spills", " ".join(problems({"gfx942": {"good": Kernel(1, 17, 8)}}, table, {"good"})))
        self.assertIn("spills", " ".join(problems({"sm_90a": {"good": Kernel(1, 1)}}, table, {"good"})))

    def test_spilled_bytes_of_a_target(self):
        for target, size, found in (("sm_80", 8, 0), ("sm_80", 9, 2), ("sm_90a", 1, 2)):
            self.assertEqual(len(list(problems({target: {"good": Kernel(1, size, size)}}, TABLE, {"good"}))), found)

    def test_kernels_and_table_agree(self):
        self.assertIn("good is missing from gfx942", self.found({}))
        self.assertIn("other is in gfx942, but not in kernels.def", self.found({"good": Kernel(1), "other": Kernel(1)}))
        table = TABLE | {"kernels": {"gone": {"scalar_spills": 1}}}
        self.assertEqual(list(problems({"gfx942": {"good": Kernel(1)}}, table, {"good"})),
                         ["the table names gone, which is no kernel of the library"])


class Ptx(unittest.TestCase):
    def test_non_coherent(self):
        bad = ["\tld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", "ld.global.nc.L1::no_allocate.b32 %r1, [%rd1];",
               "ldu.global.b32 %r1, [%rd1];"]
        good = ["ld.global.L1::no_allocate.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];", "call.uni ld_nc;", "ld.param.u64 %rd, [nc];"]
        self.assertEqual(len(list(non_coherent_loads(bad + good))), len(bad))

    def test_fused_sums(self):
        bad = ["\tfma.rn.f32 %f1, %f2, %f3, %f4;", "fma.rn.ftz.f32 %f1, %f2, %f3, %f4;", "fma.rn.f64 %fd1, %fd2, %fd3, %fd4;"]
        good = ["mul.rn.f32 %f1, %f2, %f3;", "add.rn.f32 %f1, %f2, %f3;", "mad.lo.s32 %r1, %r2, %r3, %r4;"]
        self.assertEqual(len(list(fused_sums(bad + good))), len(bad))


if __name__ == "__main__":
    unittest.main()
