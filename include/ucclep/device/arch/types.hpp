// SPDX-License-Identifier: Apache-2.0
// Plain types of the verbs, the same on every target and on the host.
#pragma once
#include <cstdint>

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

// A barrier of the whole grid, in device memory, zero before the first use and then good for launch after launch.
// After a false return it must be zeroed before it is used again.
struct GridBarrier {
  uint32_t arrived;
  uint32_t generation;
};

}  // namespace ucclep
