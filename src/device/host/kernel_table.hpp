// SPDX-License-Identifier: Apache-2.0
// Which function a kernel's name means, for each wave size.
#pragma once
#include "device/host/launch.hpp"

namespace ucclep::executor {

// nullptr: there is no such kernel.
KernelFunction find_kernel(unsigned wave, const char* name);

}  // namespace ucclep::executor
