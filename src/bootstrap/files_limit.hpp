// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>

namespace ucclep {

// A hub of thousands of ranks needs more descriptors than the usual soft limit of 1024: raises it as far as the hard
// limit allows, only when connections come near it.
void raise_files_limit(size_t connections) noexcept;

}  // namespace ucclep
