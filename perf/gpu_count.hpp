// SPDX-License-Identifier: Apache-2.0
// How many ranks a tool has when nobody says: one for each GPU.
#pragma once
#include <string>

namespace ucclep::perf {

// GPUs of a driver of this machine. device: auto (as UCCLEP_DEVICE says, else the first driver with any), cuda, hip or
// host. 0: none.
int gpu_count(const std::string& device);

}  // namespace ucclep::perf
