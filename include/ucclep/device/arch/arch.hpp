// SPDX-License-Identifier: Apache-2.0
// Picks the target. The three headers provide the same verbs, one instruction (or the shortest sequence) per verb;
// ../simt.hpp documents what each verb orders. Only this folder has target #ifs, builtins and PTX.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"

namespace ucclep {

// Who takes part in the order: the lanes of one device, or also its peers, the CPU and NICs.
enum class Scope { gpu, system };

struct alignas(16) vec16 {
  uint32_t x, y, z, w;
};

// Flag-in-data: value and epoch travel in one 16-byte store, so the reader of the epoch has the value.
struct alignas(16) Packet {
  uint64_t value, epoch;
};

}  // namespace ucclep

#if defined(__HIP__)
#include "ucclep/device/arch/amdgcn.hpp"
#elif defined(__CUDACC__)
#include "ucclep/device/arch/cuda.hpp"
#else
#include "ucclep/device/arch/host.hpp"
#endif
