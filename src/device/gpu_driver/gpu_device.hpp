// SPDX-License-Identifier: Apache-2.0
// A GPU as the library's device, over the driver's table. Streams and events are the caller's own: cudaStream_t,
// hipStream_t.
#pragma once
#include <memory>

#include "device/device.hpp"
#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

// index: UCCLEP_DEVICE_INDEX_CURRENT is the calling thread's current device.
std::unique_ptr<Device> open_gpu_device(const Driver& driver, int index);

}  // namespace ucclep::gpu
