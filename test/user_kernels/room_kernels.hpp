// SPDX-License-Identifier: Apache-2.0
// A kernel of a user's that holds SMs for as long as its user likes.
#pragma once
#include "ucclep/device.hpp"

namespace ucclep::test {

struct HoldArgs {
  uint64_t* running;  // host memory: how many blocks run
  uint64_t* end;      // host memory: not 0: they end
};

}  // namespace ucclep::test
