// SPDX-License-Identifier: Apache-2.0
// The C boundary: the one place where errors are caught. Every function of the API is
//
//   ucclEpResult_t ucclEpDispatch(...) {
//     return guarded("ucclEpDispatch", comm_of(handle), [&] { ...; });
//   }
//
// The body throws ucclep::Error, and writes its out-parameters last: a call that fails has written none.
#pragma once
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "host/last_error.hpp"

namespace ucclep {

// Turns the exception that is being handled into its code and keeps its sentence. Call it in a catch block.
ucclEpResult_t keep_current_exception(const char* function, ucclEpComm_t comm) noexcept;

// comm: whose last error this becomes, next to the thread's; may be NULL.
template <class F>
ucclEpResult_t guarded(const char* function, ucclEpComm_t comm, F&& body) noexcept {
  static_assert(std::is_void_v<std::invoke_result_t<F>>, "every code but success needs a sentence: throw it");
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
