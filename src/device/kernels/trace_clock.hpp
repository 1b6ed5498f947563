// SPDX-License-Identifier: Apache-2.0
// What the clock of a device says, for who wants to compare it with another.
#pragma once
#include <cstdint>

namespace ucclep {

struct TraceClockArgs {
  uint64_t* now_ns;  // host memory
};

}  // namespace ucclep
