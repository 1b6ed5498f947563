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

// num_sms: of the call, else of the group, else 0 = the device's default. All blocks are resident at once, one per SM.
LaunchPlan plan_rows(const DeviceTraits& traits, int call_num_sms, int group_num_sms);      // kernels that move rows
LaunchShape plan_routing(const DeviceTraits& traits, int call_num_sms, int group_num_sms);  // kernels that only route

}  // namespace ucclep
