// SPDX-License-Identifier: Apache-2.0
// From a caller's group config to the shape from which all offsets follow: the checks and the defaults.
#pragma once
#include "device/device.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

constexpr int64_t max_tokens = INT32_MAX / 2;  // per rank, in either mode

// Fills in defaults. Throws ucclEpInvalidArgument naming the field, ucclEpNotSupported for what later versions bring.
// nodes, here and below: of a communicator in which some ranks are reached by the network only.
ucclEpGroupConfig_t checked_config(const ucclEpGroupConfig_t& config, int nranks, const DeviceTraits& traits,
                                   const NodeShape& nodes);

// True if operations of HT may have several rounds. They have one with masks, since an operation may run again. A block
// of several rounds sends while it sums, which needs two warps.
bool has_rounds(const GroupShape& shape, const DeviceTraits& traits);

// A round of HT has as many tokens as window_bytes has room for.
GroupShape shape_of(const ucclEpGroupConfig_t& checked, int nranks, const DeviceTraits& traits, const NodeShape& nodes);

// Error(ucclEpInvalidArgument): the windows of the group are larger than asked for.
void check_window_bytes(const ucclEpGroupConfig_t& checked, const GroupShape& shape);

// A group's own device memory, without handles: GroupState, and then
struct WorkspaceLayout {
  uint64_t windows;  // char* [R]; in a networked group of the network's windows, too
  uint64_t channel;  // ChannelState
  uint64_t masks;    // GroupMasks, with enable_mask
  uint64_t network;  // NetworkView, where the group has one, behind which come
  uint64_t tables;   // NetworkTables
  uint64_t zeros;    // a row that nobody writes
  uint64_t bytes;

  static WorkspaceLayout of(const GroupShape& shape);
};

}  // namespace ucclep
