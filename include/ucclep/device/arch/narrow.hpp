// SPDX-License-Identifier: Apache-2.0
// Narrowing to fp8 by arithmetic, for targets without an instruction that gives the same bits.
// Included by arch/amdgcn.hpp and arch/host.hpp.
#pragma once
#include "ucclep/device/numeric.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN uint32_t to_e4m3_pair(float low, float high) {
  return to_e4m3(low) | uint32_t{to_e4m3(high)} << 8;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
