// SPDX-License-Identifier: Apache-2.0
// What LL kernels are given.
#pragma once
#include "ucclep/device/deliver.hpp"

namespace ucclep {

struct LlDispatchArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceHandle handle;
  RoutingInput routing;  // of this call, or what the Update left in the handle
  Settings settings;
  RowSource source;
  View topk_weights;  // f32 [T, K] or not given
  DispatchOutput output;
  CounterViews counters;
  uint32_t piece_bytes;
};

struct LlUpdateArgs {
  ucclEpDeviceGroup group;
  ucclEpDeviceHandle handle;
  RoutingInput routing;
};

}  // namespace ucclep
