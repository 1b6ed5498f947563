// SPDX-License-Identifier: Apache-2.0
// In a test that links this file, it stands in for src/device/kernels/gpu_code.cpp.
#include "doubles/embedded_code.hpp"

#include <iterator>

#include "device/kernels/gpu_code.hpp"

namespace ucclep {

std::vector<GpuCode> gpu_code() {
  static const GpuCode table[] = {
      {"sm_90a", std::as_bytes(std::span(doubles::host_kernels<32>)), 1, true},
      {"sm_80", {}, 1, false},  // not built
      {"compute_80", std::as_bytes(std::span(doubles::host_kernels<32>)), 1, false},
      {"gfx90a", {}, 1, false},  // not built
      {"gfx942", std::as_bytes(std::span(doubles::host_kernels<64>)), 1, false},
  };
  return {std::begin(table), std::end(table)};
}

const char* gpu_code_summary() {
  return "sm_90a compute_80 gfx942 (for test doubles)";
}

}  // namespace ucclep
