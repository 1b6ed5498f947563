// SPDX-License-Identifier: Apache-2.0
// HT between nodes in groups with rings (ht_ring.hpp). A dispatch is always whole; of a combine there are halves, too.
#include "ucclep/device/ht/dispatch.hpp"
#include "ucclep/device/ht/nodes/by_rings.hpp"
#include "ucclep/device/rows/quantise.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ht_dispatch_rings, HtDispatchArgs) {
  ht::dispatch<ForwardRow, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_dispatch_fp8_rings, HtDispatchArgs) {
  ht::dispatch<QuantiseRow, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_combine_bf16_rings, HtCombineArgs) {
  ht::combine<Bf16, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_combine_fp16_rings, HtCombineArgs) {
  ht::combine<Fp16, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_combine_fp32_rings, HtCombineArgs) {
  ht::combine<Fp32, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_send_combine_bf16_rings, HtCombineArgs) {
  ht::send_combine<Bf16, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_send_combine_fp16_rings, HtCombineArgs) {
  ht::send_combine<Fp16, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_send_combine_fp32_rings, HtCombineArgs) {
  ht::send_combine<Fp32, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_complete_combine_bf16_rings, HtCombineArgs) {
  ht::complete_combine<Bf16, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_complete_combine_fp16_rings, HtCombineArgs) {
  ht::complete_combine<Fp16, ht::ByRings>(args);
}
UCCLEP_KERNEL(ht_complete_combine_fp32_rings, HtCombineArgs) {
  ht::complete_combine<Fp32, ht::ByRings>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
