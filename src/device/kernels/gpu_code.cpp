// SPDX-License-Identifier: Apache-2.0
#include "device/kernels/gpu_code.hpp"

#include <cstdint>
#include <string_view>

// All targets there may be, with their line_lanes and starts_early, in the order in which they are tried: code for a
// GPU before PTX, which a driver compiles as a process starts.
#define UCCLEP_GPU_TARGETS(X) \
  X(sm_120, 8, true)          \
  X(sm_103, 8, true)          \
  X(sm_100, 8, true)          \
  X(sm_90a, 8, true)          \
  X(sm_80, 8, false)          \
  X(compute_90, 8, true)      \
  X(compute_80, 8, false)     \
  X(gfx90a, 1, false)         \
  X(gfx942, 1, false)

namespace ucclep {

namespace {

struct Embedded {
  const char* target;
  const std::byte* code;
  uint64_t bytes;
};
// From embed.S: those that were built, and one without a target.
extern "C" const Embedded ucclep_embedded_code[] __attribute__((visibility("hidden")));

std::span<const std::byte> built(std::string_view target) {
  for (const Embedded* one = ucclep_embedded_code; one->target != nullptr; ++one) {
    if (target == one->target) return {one->code, one->bytes};
  }
  return {};
}

}  // namespace

std::vector<GpuCode> gpu_code() {
#define UCCLEP_ENTRY(target, lanes, early) {#target, built(#target), lanes, early},
  return {UCCLEP_GPU_TARGETS(UCCLEP_ENTRY)};
#undef UCCLEP_ENTRY
}

const char* gpu_code_summary() {
  return UCCLEP_GPU_CODE_SUMMARY;
}

}  // namespace ucclep
