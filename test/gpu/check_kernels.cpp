// SPDX-License-Identifier: Apache-2.0
// What gpu_device_test launches: the kernels of the host device's tests, and one of the library's, whose name
// the library knows, so that it is loaded before anything runs.
#include "device/kernels/trace_clock.cpp"
#include "device/put_signal.cpp"
#include "device/simt_check.cpp"
