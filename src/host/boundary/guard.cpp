// SPDX-License-Identifier: Apache-2.0
#include "host/boundary/guard.hpp"

#include "base/log.hpp"
#include "host/context/communicator.hpp"

namespace ucclep {
namespace {

ucclEpResult_t keep(const char* function, ucclEpComm_t comm, const char* message, ucclEpResult_t code) noexcept {
  set_last_error(comm, function, message);
  log::warn("api", "{}: {} ({})", function, message, ucclEpGetErrorString(code));
  return code;
}

}  // namespace

ucclEpResult_t keep_current_exception(const char* function, ucclEpComm_t comm) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep(function, comm, error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return keep(function, comm, "out of memory on the host", ucclEpOutOfMemory);
  } catch (const std::exception& error) {
    return keep(function, comm, error.what(), ucclEpInternalError);
  } catch (...) {
    return keep(function, comm, "an exception of unknown type", ucclEpInternalError);
  }
}

TracedCall::TracedCall(const char* function, ucclEpComm_t comm) noexcept
    : trace_(comm != nullptr ? comm->trace.get() : nullptr), function_(function) {
  if (trace_ != nullptr) begin_ns_ = Trace::now_ns();
}

void TracedCall::end() noexcept {
  trace_->add_call(function_, begin_ns_, Trace::now_ns());
}

}  // namespace ucclep
