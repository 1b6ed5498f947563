// SPDX-License-Identifier: Apache-2.0
// Combine, one entry point per element type.
#include "ucclep/device/combine.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(combine_bf16, CombineArgs) {
  combining::combine<Bf16>(args);
}
UCCLEP_KERNEL(combine_fp16, CombineArgs) {
  combining::combine<Fp16>(args);
}
UCCLEP_KERNEL(combine_fp32, CombineArgs) {
  combining::combine<Fp32>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
