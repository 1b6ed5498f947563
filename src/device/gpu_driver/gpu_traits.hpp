// SPDX-License-Identifier: Apache-2.0
// What a GPU says of itself, without a context on it.
#pragma once
#include "device/device.hpp"
#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

// UCCLEP_DEVICE_INDEX_CURRENT is the device of the calling thread's context; without one, device 0.
int checked_index(const Driver& driver, int index);

// Of a device by its index.
DeviceOrdinal device_ordinal(const Driver& driver, int index);

// Throws ucclEpNotSupported when the library cannot use such a device.
DeviceTraits gpu_device_traits(const Driver& driver, int index);

}  // namespace ucclep::gpu
