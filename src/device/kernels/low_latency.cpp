// SPDX-License-Identifier: Apache-2.0
// LL entry points. _lines: for groups whose rows all travel as lines.
#include "ucclep/device/low_latency.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ll_update, LlUpdateArgs) {
  ll::update(args);
}
UCCLEP_KERNEL(ll_dispatch, LlDispatchArgs) {
  ll::dispatch<ll::Forward, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_dispatch_fp8, LlDispatchArgs) {
  ll::dispatch<ll::Quantise, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_dispatch_lines, LlDispatchArgs) {
  ll::dispatch<ll::Forward, ll::LinesOnly>(args);
}
UCCLEP_KERNEL(ll_dispatch_fp8_lines, LlDispatchArgs) {
  ll::dispatch<ll::Quantise, ll::LinesOnly>(args);
}
UCCLEP_KERNEL(ll_complete_dispatch, LlDispatchArgs) {
  ll::complete_dispatch(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
