// SPDX-License-Identifier: Apache-2.0
// What AMD's compiler has to be told of a warp's values, and other targets need not know.
// Included by arch/cuda.hpp and arch/host.hpp after their shuffles.
#pragma once
#include <cstdint>

namespace UCCLEP_SIMT_NAMESPACE {

template <class T>
UCCLEP_FN T broadcast(T value, unsigned lane) {
  return shfl(value, lane);
}
UCCLEP_FN uint32_t uniform(uint32_t value) {
  return value;
}
UCCLEP_FN uint32_t keep_in_vgpr(uint32_t value) {
  return value;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
