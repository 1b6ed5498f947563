// SPDX-License-Identifier: Apache-2.0
// Contexts of GPUs, held by the test program as a framework holds them.
#pragma once

namespace ucclep::test {

// With UCCLEP_TEST_HOLDS_CONTEXTS: from now on, and until the process ends, those of all GPUs of the run. Without it
// each case makes them anew, which takes 0.7 s on four H200 (perf/results/h200x4-contexts.json).
void hold_gpu_contexts();

}  // namespace ucclep::test
