// SPDX-License-Identifier: Apache-2.0
// Warp reductions and scans out of shuffles, for targets and types that have no instruction for them.
// Included by arch/cuda.hpp and arch/amdgcn.hpp after their shuffles.
#pragma once
#include <type_traits>

namespace UCCLEP_SIMT_NAMESPACE {

// All lanes get the result; `combine` is associative and commutative.
template <class T, class Combine>
UCCLEP_FN T butterfly(T value, Combine combine) {
  static_assert(std::is_integral_v<T>, "the order of a sum of floats would differ between targets");
#pragma unroll
  for (unsigned mask = 1; mask < wave_size; mask *= 2) value = combine(value, shfl_xor(value, mask));
  return value;
}

// Inclusive over lanes in rising order.
template <class T>
UCCLEP_FN T scan_add(T value) {
  static_assert(std::is_integral_v<T>, "the order of a sum of floats would differ between targets");
#pragma unroll
  for (unsigned delta = 1; delta < wave_size; delta *= 2) {
    const T lower = shfl_up(value, delta);
    if (lane_id() >= delta) value += lower;
  }
  return value;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
