// SPDX-License-Identifier: Apache-2.0
// What the HT kernels get.
#pragma once
#include "ucclep/device/rows/reduce.hpp"
#include "ucclep/device/ht/lease.hpp"

namespace ucclep {

struct HtUpdateArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  RoutingInput routing;
  Settings settings;
  Zones zones;
  CounterViews counters;
};

struct HtDispatchArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  Settings settings;
  RowSource source;
  View topk_weights;
  DispatchOutput output;
  Offer offer;      // of the output
  View cumulative;  // int32 [L], added to
  View wait_ns;     // int64 [R], added to
  uint32_t piece_bytes;
  bool opened;  // of a second half: the first was a user's kernel
};

struct HtCombineArgs : CombineArgs {
  Offer offer;  // of the experts' rows
};

}  // namespace ucclep
