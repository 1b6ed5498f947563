// SPDX-License-Identifier: Apache-2.0
#include "whole_kernels.hpp"

#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/ll/network.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::WholeArgs;
namespace WholeParts = test::WholeParts;

template <class Dispatch, class Combine>
UCCLEP_FN void run_whole(const WholeArgs& args, Dispatch&& dispatch, Combine&& combine) {
  for (uint32_t round = 0; round < args.rounds; ++round) {
    const uint32_t i = round % 2;
    bool ok = (args.parts & WholeParts::dispatch) == 0 || dispatch(args.dispatch[i]);
    ok = ok && ((args.parts & WholeParts::combine) == 0 || combine(args.combine[i]));
    if (ok) continue;
    if (thread_id() == 0) fetch_add_relaxed<Scope::gpu>(args.failed, 1u);
    return;
  }
}

template <class Row, class Element, class Forms>
UCCLEP_FN void run_whole_ll(const WholeArgs& args) {
  run_whole(
      args, [](const ucclEpDeviceDispatch& call) { return ll::dispatch<Row, Forms>(grid{}, call); },
      [](const ucclEpDeviceCombine& call) { return ll::combine<Element, Forms>(grid{}, call); });
}
template <class Row, class Element, class Wire>
UCCLEP_FN void run_whole_ht(const WholeArgs& args) {
  run_whole(
      args, [](const ucclEpDeviceDispatch& call) { return ht::dispatch<Row, Wire>(grid{}, call); },
      [](const ucclEpDeviceCombine& call) { return ht::combine<Element, Wire>(grid{}, call); });
}

UCCLEP_KERNEL(whole_ll, WholeArgs) {
  run_whole_ll<ll::Forward, Fp32, ll::AnyForm>(args);
}
UCCLEP_KERNEL(whole_ll_lines, WholeArgs) {
  run_whole_ll<ll::Forward, Fp32, ll::LinesOnly>(args);
}
UCCLEP_KERNEL(whole_ll_network, WholeArgs) {
  run_whole_ll<ll::Forward, Fp32, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(whole_ll_quantised, WholeArgs) {
  run_whole_ll<ll::Quantise, Bf16, ll::AnyForm>(args);
}
UCCLEP_KERNEL(whole_ll_quantised_network, WholeArgs) {
  run_whole_ll<ll::Quantise, Bf16, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(whole_ht, WholeArgs) {
  run_whole_ht<ForwardRow, Fp32, ht::OneNode>(args);
}
UCCLEP_KERNEL(whole_ht_network, WholeArgs) {
  run_whole_ht<ForwardRow, Fp32, ht::AcrossNodes>(args);
}
UCCLEP_KERNEL(whole_ht_quantised, WholeArgs) {
  run_whole_ht<QuantiseRow, Bf16, ht::OneNode>(args);
}
UCCLEP_KERNEL(whole_ht_quantised_network, WholeArgs) {
  run_whole_ht<QuantiseRow, Bf16, ht::AcrossNodes>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
