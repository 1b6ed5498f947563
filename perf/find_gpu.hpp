// SPDX-License-Identifier: Apache-2.0
// The GPU driver of this machine, for tools that stand beside the library.
#pragma once
#include <string>

#include "device/gpu_driver/driver.hpp"

namespace ucclep::perf {

// wanted: cuda, hip, or auto for the first that there is. Null, with a reason, where there is none.
const gpu::Driver* find_gpu_driver(const std::string& wanted, std::string* why);

}  // namespace ucclep::perf
