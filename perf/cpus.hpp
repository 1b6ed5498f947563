// SPDX-License-Identifier: Apache-2.0
// Which CPUs a thread runs on.
#pragma once
#include <span>
#include <vector>

namespace ucclep::perf {

// Those that this thread may use.
std::vector<int> usable_cpus();
// This thread, and those that it starts from now on. Throws PerfError where none of the CPUs can be used.
void run_on(std::span<const int> cpus);

}  // namespace ucclep::perf
