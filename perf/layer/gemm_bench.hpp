// SPDX-License-Identifier: Apache-2.0
// The grouped GEMMs by themselves, on GPU 0, beside CUTLASS's.
#pragma once
#include "options.hpp"

namespace ucclep::perf {

// Prints a table for each size. True if all results are right.
bool bench_gemms(const Options& options);

}  // namespace ucclep::perf
