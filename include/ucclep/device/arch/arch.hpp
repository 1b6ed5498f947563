// SPDX-License-Identifier: Apache-2.0
// Picks the target. The three headers provide the same verbs, one instruction (or the shortest sequence) per verb;
// simt/simt.hpp documents what each verb orders. Only this folder has target #ifs, builtins and PTX.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/arch/types.hpp"

#if defined(__HIP__)
#include "ucclep/device/arch/amdgcn.hpp"
#elif defined(__CUDACC__)
#include "ucclep/device/arch/cuda.hpp"
#else
#include "ucclep/device/arch/host.hpp"
#endif

#if !defined(__HIP__)
namespace UCCLEP_SIMT_NAMESPACE {

// AMD's compiler needs these to keep a warp's common values in scalar registers. Other targets do without.
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
#endif
