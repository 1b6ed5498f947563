// SPDX-License-Identifier: Apache-2.0
// What gpu_device_test launches: the kernels of the host device's tests, and one of the library's.
#include "device/kernels/trace_clock.hpp"
#include "device/put_signal.cpp"
#include "device/simt_check.cpp"

namespace ucclep {

// Its name is in the library's table, so that it is there before anything runs.
UCCLEP_KERNEL(trace_clock, TraceClockArgs) {
  store_clock(args);
}

}  // namespace ucclep
