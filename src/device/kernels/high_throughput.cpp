// SPDX-License-Identifier: Apache-2.0
// HT entry points; combine has one per element type.
#include "ucclep/device/high_throughput.hpp"
#include "ucclep/device/ht_combine.hpp"
#include "ucclep/device/quantise.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ht_update, HtUpdateArgs) {
  ht::update(args);
}
UCCLEP_KERNEL(ht_dispatch, HtDispatchArgs) {
  ht::dispatch<ForwardRow>(args);
}
UCCLEP_KERNEL(ht_dispatch_fp8, HtDispatchArgs) {
  ht::dispatch<QuantiseRow>(args);
}

UCCLEP_KERNEL(ht_combine_bf16, HtCombineArgs) {
  ht::combine<Bf16>(args);
}
UCCLEP_KERNEL(ht_combine_fp16, HtCombineArgs) {
  ht::combine<Fp16>(args);
}
UCCLEP_KERNEL(ht_combine_fp32, HtCombineArgs) {
  ht::combine<Fp32>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
