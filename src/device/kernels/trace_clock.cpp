// SPDX-License-Identifier: Apache-2.0
#include "device/kernels/trace_clock.hpp"

#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(trace_clock, TraceClockArgs) {
  if (thread_id() == 0) store_release<Scope::system>(args.now_ns, clock_ns());
}

}  // namespace UCCLEP_SIMT_NAMESPACE
