// SPDX-License-Identifier: Apache-2.0
// Functions of the contract that this version does not have. Each says what it would do and what to use instead, after
// the checks of its objects, so that a program's mistakes show today.
#include "host/guard.hpp"

namespace {

template <class Object>
ucclEpResult_t refuse(const char* function, ucclEpComm_t comm, const Object* object, const char* name,
                      const char* sentence) noexcept {
  return ucclep::guarded(function, comm, [&] {
    ucclep::require(object, name);
    ucclep::fail(ucclEpNotSupported, "{}", sentence);
  });
}

constexpr char no_mask[] =
    "this version has no masks; a peer that misses its deadline is ucclEpTimeout, after which a new communicator "
    "without "
    "it is the way on";

}  // namespace

ucclEpResult_t ucclEpMaskQuery(ucclEpGroup_t group, int*, ucclEpStream_t) {
  return refuse("ucclEpMaskQuery", nullptr, group, "group", no_mask);
}

ucclEpResult_t ucclEpMaskUpdate(ucclEpGroup_t group, const int*, ucclEpStream_t) {
  return refuse("ucclEpMaskUpdate", nullptr, group, "group", no_mask);
}

ucclEpResult_t ucclEpMaskClear(ucclEpGroup_t group, ucclEpStream_t) {
  return refuse("ucclEpMaskClear", nullptr, group, "group", no_mask);
}
