// SPDX-License-Identifier: Apache-2.0
// Which kernel a name means, for each wave size.
#pragma once
#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep::executor {

// nullptr: there is no such kernel.
const KernelRegistration* find_kernel(unsigned wave, const char* name);

}  // namespace ucclep::executor
