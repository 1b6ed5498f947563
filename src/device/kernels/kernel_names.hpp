// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

namespace ucclep {

// Of all kernels, without the prefix that they have in GPU code.
std::span<const char* const> kernel_names();

}  // namespace ucclep
