// SPDX-License-Identifier: Apache-2.0
#include "host/boundary/guard.hpp"

#include "base/attempt.hpp"
#include "base/log.hpp"
#include "host/context/communicator.hpp"

namespace ucclep {
ucclEpResult_t keep_current_exception(const char* function, ucclEpComm_t comm) noexcept {
  const Error error = current_error();
  set_last_error(comm, function, error.what());
  log::warn("api", "{}: {} ({})", function, error.what(), ucclEpGetErrorString(error.code()));
  return error.code();
}

TracedCall::TracedCall(const char* function, ucclEpComm_t comm) noexcept
    : trace_(comm != nullptr ? comm->trace.get() : nullptr), function_(function) {
  if (trace_ != nullptr) begin_ns_ = Trace::now_ns();
}

void TracedCall::end() noexcept {
  trace_->add_call(function_, begin_ns_, Trace::now_ns());
}

}  // namespace ucclep
