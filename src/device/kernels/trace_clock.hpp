// SPDX-License-Identifier: Apache-2.0
// What the clock of a device says, for who wants to compare it with another.
#pragma once
#include "ucclep/device/simt/simt.hpp"

namespace ucclep {

struct TraceClockArgs {
  uint64_t* now_ns;  // host memory
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN void store_clock(const TraceClockArgs& args) {
  if (thread_id() == 0) store_release<Scope::system>(args.now_ns, clock_ns());
}

}  // namespace UCCLEP_SIMT_NAMESPACE
