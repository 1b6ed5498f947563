// SPDX-License-Identifier: Apache-2.0
// The C boundary: the one place where errors are caught. Every function of the API is
//
//   ucclEpResult_t ucclEpDispatch(...) {
//     return guarded("ucclEpDispatch", comm_of(handle), [&] { ...; });
//   }
//
// The body throws ucclep::Error, and writes its out-parameters last: a call that fails has written none.
#pragma once
#include <cstdint>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "host/context/last_error.hpp"

namespace ucclep {

class Trace;

// Turns the exception that is being handled into its code and keeps its message. Call it in a catch block.
ucclEpResult_t keep_current_exception(const char* function, ucclEpComm_t comm) noexcept;

// A call of the API, for UCCLEP_TRACE.
class TracedCall {
 public:
  TracedCall(const char* function, ucclEpComm_t comm) noexcept;
  ~TracedCall() {
    if (trace_ != nullptr) end();
  }
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;

 private:
  void end() noexcept;

  Trace* trace_;  // NULL: nobody asks
  const char* function_;
  int64_t begin_ns_ = 0;
};

// comm: whose last error this becomes, next to the thread's; may be NULL.
template <class F>
ucclEpResult_t guarded(const char* function, ucclEpComm_t comm, F&& body) noexcept {
  static_assert(std::is_void_v<std::invoke_result_t<F>>, "every code but success needs an error message: throw it");
  const TracedCall call(function, comm);
  try {
    std::forward<F>(body)();
    return ucclEpSuccess;
  } catch (...) {
    return keep_current_exception(function, comm);
  }
}

// For objects and required out-parameters.
template <class T>
void require(const T* argument, const char* name) {
  if (argument == nullptr) fail(ucclEpInvalidArgument, "{} is NULL", name);
}

}  // namespace ucclep
