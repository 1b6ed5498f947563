// SPDX-License-Identifier: Apache-2.0
// LL combine and its halves, one entry point per element type. _lines: for groups whose rows all travel as lines,
// _few: and few of them; of_living: that have masks; _network: for groups in several domains.
#include "ucclep/device/ll/combine_few.hpp"
#include "ucclep/device/ll/network.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ll_announce_weights, CombineArgs) {
  combining::announce_weights<ll::ByWindows>(args);
}
UCCLEP_KERNEL(ll_announce_weights_network, CombineArgs) {
  combining::announce_weights<ByNetwork>(args);
}
UCCLEP_KERNEL(ll_combine_bf16, CombineArgs) {
  combining::combine_ll<Bf16, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_combine_bf16_lines, CombineArgs) {
  combining::combine_ll<Bf16, ll::LinesOnly>(args);
}
UCCLEP_KERNEL(ll_combine_bf16_few, CombineArgs) {
  combining::combine_few<Bf16>(args);
}
UCCLEP_KERNEL(ll_combine_bf16_lines_of_living, CombineArgs) {
  combining::combine_ll<Bf16, ll::LinesOfLiving>(args);
}
UCCLEP_KERNEL(ll_combine_bf16_network, CombineArgs) {
  combining::combine_ll<Bf16, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(ll_send_combine_bf16, CombineArgs) {
  combining::combine_ll<Bf16, ll::AnyForm, Part::first>(args);
}
UCCLEP_KERNEL(ll_send_combine_bf16_network, CombineArgs) {
  combining::combine_ll<Bf16, ll::AcrossDomains, Part::first>(args);
}
UCCLEP_KERNEL(ll_complete_combine_bf16, CombineArgs) {
  combining::complete_combine<Bf16, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_complete_combine_bf16_network, CombineArgs) {
  combining::complete_combine<Bf16, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(ll_combine_fp16, CombineArgs) {
  combining::combine_ll<Fp16, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_combine_fp16_lines, CombineArgs) {
  combining::combine_ll<Fp16, ll::LinesOnly>(args);
}
UCCLEP_KERNEL(ll_combine_fp16_few, CombineArgs) {
  combining::combine_few<Fp16>(args);
}
UCCLEP_KERNEL(ll_combine_fp16_lines_of_living, CombineArgs) {
  combining::combine_ll<Fp16, ll::LinesOfLiving>(args);
}
UCCLEP_KERNEL(ll_combine_fp16_network, CombineArgs) {
  combining::combine_ll<Fp16, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(ll_send_combine_fp16, CombineArgs) {
  combining::combine_ll<Fp16, ll::AnyForm, Part::first>(args);
}
UCCLEP_KERNEL(ll_send_combine_fp16_network, CombineArgs) {
  combining::combine_ll<Fp16, ll::AcrossDomains, Part::first>(args);
}
UCCLEP_KERNEL(ll_complete_combine_fp16, CombineArgs) {
  combining::complete_combine<Fp16, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_complete_combine_fp16_network, CombineArgs) {
  combining::complete_combine<Fp16, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(ll_combine_fp32, CombineArgs) {
  combining::combine_ll<Fp32, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_combine_fp32_lines, CombineArgs) {
  combining::combine_ll<Fp32, ll::LinesOnly>(args);
}
UCCLEP_KERNEL(ll_combine_fp32_few, CombineArgs) {
  combining::combine_few<Fp32>(args);
}
UCCLEP_KERNEL(ll_combine_fp32_lines_of_living, CombineArgs) {
  combining::combine_ll<Fp32, ll::LinesOfLiving>(args);
}
UCCLEP_KERNEL(ll_combine_fp32_network, CombineArgs) {
  combining::combine_ll<Fp32, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(ll_send_combine_fp32, CombineArgs) {
  combining::combine_ll<Fp32, ll::AnyForm, Part::first>(args);
}
UCCLEP_KERNEL(ll_send_combine_fp32_network, CombineArgs) {
  combining::combine_ll<Fp32, ll::AcrossDomains, Part::first>(args);
}
UCCLEP_KERNEL(ll_complete_combine_fp32, CombineArgs) {
  combining::complete_combine<Fp32, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_complete_combine_fp32_network, CombineArgs) {
  combining::complete_combine<Fp32, ll::AcrossDomains>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
