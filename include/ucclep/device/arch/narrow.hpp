// SPDX-License-Identifier: Apache-2.0
// Narrowing to fp8 and bf16 by arithmetic, for targets without an instruction that gives the same bits.
// Included by arch/amdgcn.hpp and arch/host.hpp.
#pragma once
#include "ucclep/device/arch/numeric.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN uint32_t to_e4m3_pair(float low, float high) {
  return to_e4m3(low) | uint32_t{to_e4m3(high)} << 8;
}
UCCLEP_FN uint32_t to_bf16_pair(float low, float high) {
  return to_bf16(low) | uint32_t{to_bf16(high)} << 16;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
