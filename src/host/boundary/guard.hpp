// SPDX-License-Identifier: Apache-2.0
// The C boundary: the one place where errors are caught. Every function of the API is
//
//   ucclEpResult_t ucclEpDispatch(...) {
//     return guarded("ucclEpDispatch", handle, [&] { ...; });
//   }
//
// The body throws ucclep::Error, and writes its out-parameters last: a call that fails has written none. It runs only
// if the object is alive, or NULL.
#pragma once
#include <cstdint>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "host/context/last_error.hpp"
#include "host/context/live_objects.hpp"

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

// An exception of the body becomes the call's code, and the last error of this thread and of comm, which may be NULL.
template <class F>
ucclEpResult_t caught(const char* function, ucclEpComm_t comm, F&& body) noexcept {
  static_assert(std::is_void_v<std::invoke_result_t<F>>, "every code but success needs an error message: throw it");
  try {
    std::forward<F>(body)();
    return ucclEpSuccess;
  } catch (...) {
    return keep_current_exception(function, comm);
  }
}

template <class F>
ucclEpResult_t guarded(const char* function, GivenObject given, F&& body) noexcept {
  const FoundObject found = find_object(given);
  const TracedCall call(function, found.comm);
  return caught(function, found.comm, [&] {
    check_life(given, found.life);
    std::forward<F>(body)();
  });
}

// A call that any thread may make, also while another one destroys the communicator. while_ending: see HeldComm.
template <class F>
ucclEpResult_t guarded_beside(const char* function, ucclEpComm_t comm, bool while_ending, F&& body) noexcept {
  const HeldComm held(comm, while_ending);
  const TracedCall call(function, held.found().comm);
  return caught(function, held.found().comm, [&] {
    check_life(comm, held.found().life);
    std::forward<F>(body)();
  });
}

// A call that destroys a part of the communicator. In a forked child it leaves what the parent made as it is.
template <class F>
ucclEpResult_t guarded_destroying_part(const char* function, ucclEpComm_t comm, F&& body) noexcept {
  if (find_object(comm).life == Life::of_parent) return ucclEpSuccess;
  return guarded(function, comm, std::forward<F>(body));
}

// A call that destroys the object itself: no other one may be made on it from here on. Nor does it touch what a parent
// made.
template <class F>
ucclEpResult_t guarded_destroying(const char* function, GivenObject given, F&& body) noexcept {
  const FoundObject found = find_object(given);
  if (found.life == Life::none || found.life == Life::of_parent) return ucclEpSuccess;
  const TracedCall call(function, given.kind == ObjectKind::comm ? nullptr : found.comm);  // a trace ends with its comm
  return caught(function, found.comm, [&] {
    const EndOfObject end(given);
    std::forward<F>(body)();
  });
}

// For objects and required out-parameters.
template <class T>
void require(const T* argument, const char* name) {
  if (argument == nullptr) fail(ucclEpInvalidArgument, "{} is NULL", name);
}

}  // namespace ucclep
