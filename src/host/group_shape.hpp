// SPDX-License-Identifier: Apache-2.0
// From a caller's group config to the shape from which all offsets follow: the checks and the defaults.
#pragma once
#include "device/device.hpp"
#include "ucclep/device/layout.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

constexpr int64_t max_tokens = INT32_MAX / 2;  // per rank, in either mode

// Fills in defaults. Throws ucclEpInvalidArgument naming the field, ucclEpNotSupported for what later versions bring.
ucclEpGroupConfig_t checked_config(const ucclEpGroupConfig_t& config, int nranks, const DeviceTraits& traits);

GroupShape shape_of(const ucclEpGroupConfig_t& checked, int nranks, const DeviceTraits& traits);

// Bytes of device memory that a group of this shape takes on one rank, without handles.
uint64_t workspace_bytes(const GroupShape& shape);

}  // namespace ucclep
