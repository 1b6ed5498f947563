// SPDX-License-Identifier: Apache-2.0
// How a kernel is launched: blocks, threads, shared memory, and the size of the pieces in which rows move.
#pragma once
#include "device/device.hpp"
#include "ucclep/device/layout.hpp"

namespace ucclep {

struct LaunchPlan {
  LaunchShape shape;
  uint32_t piece_bytes;
};

// num_sms: 0 = all that this rank has. All blocks are resident at once, one per SM.
// Kernels that move rows. tables: bytes of shared memory that a block needs besides its stages.
LaunchPlan plan_rows(const DeviceTraits& traits, int num_sms, size_t tables = 0);

// Kernels that route, and nothing else.
struct RoutingPlan {
  LaunchShape shape;
  uint32_t scanners;
};
RoutingPlan plan_routing(const DeviceTraits& traits, const GroupShape& shape, int num_sms);
// Warps that can scan at the same time in that much shared memory.
uint32_t scanners_of(const DeviceTraits& traits, const GroupShape& shape, const LaunchShape& launch);

}  // namespace ucclep
