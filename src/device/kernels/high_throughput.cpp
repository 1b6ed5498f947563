// SPDX-License-Identifier: Apache-2.0
// HT entry points; combine has one per element type. _network: for groups in several domains. send, complete: the
// halves, and what groups with masks have instead of whole operations.
#include "ucclep/device/ht/dispatch.hpp"
#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/rows/quantise.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ht_update, HtUpdateArgs) {
  ht::update<ht::OneNode>(args);
}
UCCLEP_KERNEL(ht_dispatch, HtDispatchArgs) {
  ht::dispatch<ForwardRow, ht::OneNode>(args);
}
UCCLEP_KERNEL(ht_dispatch_fp8, HtDispatchArgs) {
  ht::dispatch<QuantiseRow, ht::OneNode>(args);
}

UCCLEP_KERNEL(ht_combine_bf16, HtCombineArgs) {
  ht::combine<Bf16, ht::OneNode>(args);
}
UCCLEP_KERNEL(ht_combine_fp16, HtCombineArgs) {
  ht::combine<Fp16, ht::OneNode>(args);
}
UCCLEP_KERNEL(ht_combine_fp32, HtCombineArgs) {
  ht::combine<Fp32, ht::OneNode>(args);
}

UCCLEP_KERNEL(ht_update_of_living, HtUpdateArgs) {
  ht::update<ht::OneNodeOfLiving>(args);
}
UCCLEP_KERNEL(ht_update_network, HtUpdateArgs) {
  ht::update<ht::AcrossNodesOfLiving>(args);
}
UCCLEP_KERNEL(ht_dispatch_network, HtDispatchArgs) {
  ht::dispatch<ForwardRow, ht::AcrossNodes>(args);
}
UCCLEP_KERNEL(ht_dispatch_fp8_network, HtDispatchArgs) {
  ht::dispatch<QuantiseRow, ht::AcrossNodes>(args);
}
UCCLEP_KERNEL(ht_combine_bf16_network, HtCombineArgs) {
  ht::combine<Bf16, ht::AcrossNodes>(args);
}
UCCLEP_KERNEL(ht_combine_fp16_network, HtCombineArgs) {
  ht::combine<Fp16, ht::AcrossNodes>(args);
}
UCCLEP_KERNEL(ht_combine_fp32_network, HtCombineArgs) {
  ht::combine<Fp32, ht::AcrossNodes>(args);
}

UCCLEP_KERNEL(ht_send_dispatch, HtDispatchArgs) {
  ht::dispatch<ForwardRow, ht::OneNodeOfLiving, Part::first>(args);
}
UCCLEP_KERNEL(ht_send_dispatch_fp8, HtDispatchArgs) {
  ht::dispatch<QuantiseRow, ht::OneNodeOfLiving, Part::first>(args);
}
UCCLEP_KERNEL(ht_complete_dispatch, HtDispatchArgs) {
  ht::complete_dispatch<ht::OneNodeOfLiving>(args);
}
UCCLEP_KERNEL(ht_send_dispatch_network, HtDispatchArgs) {
  ht::dispatch<ForwardRow, ht::AcrossNodesOfLiving, Part::first>(args);
}
UCCLEP_KERNEL(ht_send_dispatch_fp8_network, HtDispatchArgs) {
  ht::dispatch<QuantiseRow, ht::AcrossNodesOfLiving, Part::first>(args);
}
UCCLEP_KERNEL(ht_complete_dispatch_network, HtDispatchArgs) {
  ht::complete_dispatch<ht::AcrossNodesOfLiving>(args);
}
UCCLEP_KERNEL(ht_send_combine_bf16, HtCombineArgs) {
  ht::send_combine<Bf16, ht::OneNodeOfLiving>(args);
}
UCCLEP_KERNEL(ht_send_combine_fp16, HtCombineArgs) {
  ht::send_combine<Fp16, ht::OneNodeOfLiving>(args);
}
UCCLEP_KERNEL(ht_send_combine_fp32, HtCombineArgs) {
  ht::send_combine<Fp32, ht::OneNodeOfLiving>(args);
}
UCCLEP_KERNEL(ht_complete_combine_bf16, HtCombineArgs) {
  ht::complete_combine<Bf16, ht::OneNodeOfLiving>(args);
}
UCCLEP_KERNEL(ht_complete_combine_fp16, HtCombineArgs) {
  ht::complete_combine<Fp16, ht::OneNodeOfLiving>(args);
}
UCCLEP_KERNEL(ht_complete_combine_fp32, HtCombineArgs) {
  ht::complete_combine<Fp32, ht::OneNodeOfLiving>(args);
}
UCCLEP_KERNEL(ht_send_combine_bf16_network, HtCombineArgs) {
  ht::send_combine<Bf16, ht::AcrossNodesOfLiving>(args);
}
UCCLEP_KERNEL(ht_send_combine_fp16_network, HtCombineArgs) {
  ht::send_combine<Fp16, ht::AcrossNodesOfLiving>(args);
}
UCCLEP_KERNEL(ht_send_combine_fp32_network, HtCombineArgs) {
  ht::send_combine<Fp32, ht::AcrossNodesOfLiving>(args);
}
UCCLEP_KERNEL(ht_complete_combine_bf16_network, HtCombineArgs) {
  ht::complete_combine<Bf16, ht::AcrossNodesOfLiving>(args);
}
UCCLEP_KERNEL(ht_complete_combine_fp16_network, HtCombineArgs) {
  ht::complete_combine<Fp16, ht::AcrossNodesOfLiving>(args);
}
UCCLEP_KERNEL(ht_complete_combine_fp32_network, HtCombineArgs) {
  ht::complete_combine<Fp32, ht::AcrossNodesOfLiving>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
