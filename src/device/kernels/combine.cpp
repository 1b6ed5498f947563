// SPDX-License-Identifier: Apache-2.0
// LL combine, one entry point per element type.
#include "ucclep/device/combine.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ll_combine_bf16, CombineArgs) {
  combining::combine<combining::LlRows, Bf16>(args);
}
UCCLEP_KERNEL(ll_combine_fp16, CombineArgs) {
  combining::combine<combining::LlRows, Fp16>(args);
}
UCCLEP_KERNEL(ll_combine_fp32, CombineArgs) {
  combining::combine<combining::LlRows, Fp32>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
