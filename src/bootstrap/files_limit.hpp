// SPDX-License-Identifier: Apache-2.0
// The process's limit of open files, of which the library takes a part and leaves the rest to the program.
#pragma once
#include <cstddef>

namespace ucclep {

// The soft limit (RLIMIT_NOFILE), which the process feels.
size_t files_limit() noexcept;

// A hub of thousands of ranks needs more descriptors than the usual soft limit of 1024. Descriptors are numbered from
// below: when the newest comes near the limit, this raises it, as far as the hard limit allows.
void raise_files_limit(int newest) noexcept;

// How many connections of strangers a door holds at once, so that they never take what the program needs.
size_t places_for_strangers() noexcept;

}  // namespace ucclep
