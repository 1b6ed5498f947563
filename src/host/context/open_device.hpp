// SPDX-License-Identifier: Apache-2.0
// Which device a rank uses.
#pragma once
#include <memory>

#include "device/device.hpp"

namespace ucclep {

// kind: UCCLEP_DEVICE_*. AUTO takes the first GPU driver that can be used, else the host device, and says why.
// index: of a GPU, or UCCLEP_DEVICE_INDEX_CURRENT; the host device has the rank's number.
std::unique_ptr<Device> open_device(int kind, int index, int rank);

// What the device that a rank of this process would get says of itself. Opens none.
DeviceTraits expected_traits(int kind, int index);

}  // namespace ucclep
