// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels that push commands in tests.
#pragma once
#include "ucclep/device/network/fifo.hpp"

namespace ucclep::test {

struct PushArgs {
  Fifo fifo;
  uint32_t rings;     // commands are dealt out to
  uint32_t rounds;    // pushes of each lane
  uint32_t run;       // commands of a lane in one push_run
  uint64_t* payload;  // [producers][rounds], zero before; its value is the number of the command plus one
  uint64_t* refused;  // counts lanes whose push gave up
};

}  // namespace ucclep::test
