// SPDX-License-Identifier: Apache-2.0
#include "device/kernels/gpu_code.hpp"

#include <cstdint>

// From embed.S.
extern "C" {
extern const std::byte ucclep_code_sm_90a[];
extern const uint64_t ucclep_code_sm_90a_bytes;
extern const std::byte ucclep_code_gfx90a[];
extern const uint64_t ucclep_code_gfx90a_bytes;
extern const std::byte ucclep_code_gfx942[];
extern const uint64_t ucclep_code_gfx942_bytes;
}

namespace ucclep {

std::vector<GpuCode> gpu_code() {
  return {
      {"sm_90a", {ucclep_code_sm_90a, ucclep_code_sm_90a_bytes}, 8},
      {"gfx90a", {ucclep_code_gfx90a, ucclep_code_gfx90a_bytes}, 1},
      {"gfx942", {ucclep_code_gfx942, ucclep_code_gfx942_bytes}, 1},
  };
}

const char* gpu_code_summary() {
  return UCCLEP_GPU_CODE_SUMMARY;
}

}  // namespace ucclep
