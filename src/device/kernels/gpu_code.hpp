// SPDX-License-Identifier: Apache-2.0
// The GPU code inside the library. Each blob holds all kernels, under the names ucclep_NAME.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace ucclep {

struct GpuCode {
  const char* target;               // "sm_90a", "compute_90" (PTX), "gfx942"
  std::span<const std::byte> code;  // a fatbin for CUDA, a code object for AMD; empty when it was not built
  unsigned line_lanes;              // P15: lanes whose 16-byte stores this code takes to arrive together
  bool starts_early;                // its kernels wait for what their stream has ahead of them (wait_for_stream)
};

// One entry per target, also for those that were not built, in the order in which they are tried. Made at each call: a
// table of the process would keep the code in programs that never ask for it.
std::vector<GpuCode> gpu_code();

// "sm_90a (nvcc 13.0) | gfx90a gfx942 (clang-19)", or "none: " and the reason.
const char* gpu_code_summary();

}  // namespace ucclep
