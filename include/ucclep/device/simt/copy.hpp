// SPDX-License-Identifier: Apache-2.0
// Bytes from memory to memory, by any scope.
#pragma once
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Verb of the members: 16-byte vectors, several of each member under way; bytes: a multiple of 16, as both addresses
// are. Members: a scope, or what has its rank and size.
template <class Members>
UCCLEP_FN void copy_vectors(char* to, const char* from, uint64_t bytes) {
  constexpr uint32_t in_flight = 4, unit = sizeof(vec16);
  const uint64_t units = bytes / unit, step = Members::size();
  uint64_t i = Members::rank();
  for (; i + (in_flight - 1) * step < units; i += in_flight * step) {
    vec16 values[in_flight];
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < in_flight; ++j) values[j] = load16(from + unit * (i + j * step));
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < in_flight; ++j) store16(to + unit * (i + j * step), values[j]);
  }
  for (; i < units; i += step) store16(to + unit * i, load16(from + unit * i));
}

}  // namespace UCCLEP_SIMT_NAMESPACE
