// SPDX-License-Identifier: Apache-2.0
// Kernels of users that run whole operations, one after the other.
#pragma once
#include "ucclep/device/whole_operations.hpp"

namespace ucclep::test {

struct WholeArgs {
  ucclEpDeviceDispatch dispatch[2];  // of one round, and of the next
  ucclEpDeviceCombine combine[2];
  uint32_t rounds, parts;  // WholeParts
  uint32_t* failed;        // blocks in which an operation failed
};

// What of a round a kernel does.
namespace WholeParts {
inline constexpr uint32_t dispatch = 1, combine = 2, both = 3;
}

}  // namespace ucclep::test
