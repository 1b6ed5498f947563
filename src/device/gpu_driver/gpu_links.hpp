// SPDX-License-Identifier: Apache-2.0
// The GPUs that a driver shows to this process: where they are, and which of them NVLink or xGMI joins. No context is
// made on any of them.
#pragma once
#include <string>
#include <vector>

#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

struct ShownGpu {
  uint64_t place = 0;  // as in DeviceTraits
  std::string model;
  int island = 0;  // the least index among the GPUs of which links join any two, this one included
};

uint64_t place_of(const Driver& driver, DeviceOrdinal device);

std::vector<ShownGpu> shown_gpus(const Driver& driver);

}  // namespace ucclep::gpu
