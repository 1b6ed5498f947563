// SPDX-License-Identifier: Apache-2.0
// The messages behind ucclEpGetLastError: one per thread, one per communicator. Only the first error of a thread
// allocates, a few KiB, so that ucclEpOutOfMemory has its message too; an error message longer than the space is cut.
#pragma once
#include <string_view>

#include "ucclep/ucclep.h"

namespace ucclep {

// From here on errors of calls with comm are kept for it, until forget_errors_of.
void keep_errors_of(ucclEpComm_t comm);
void forget_errors_of(ucclEpComm_t comm) noexcept;

// Keeps "function: message" for the calling thread, and for comm if its errors are kept.
void set_last_error(ucclEpComm_t comm, std::string_view function, std::string_view message) noexcept;

}  // namespace ucclep
