// SPDX-License-Identifier: Apache-2.0
// LL entry points.
#include "ucclep/device/low_latency.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ll_update, LlUpdateArgs) {
  ll::update(args);
}
UCCLEP_KERNEL(ll_dispatch, LlDispatchArgs) {
  ll::dispatch<ll::Forward>(args);
}
UCCLEP_KERNEL(ll_dispatch_fp8, LlDispatchArgs) {
  ll::dispatch<ll::Quantise>(args);
}

UCCLEP_KERNEL(ll_complete_dispatch, LlDispatchArgs) {
  ll::complete_dispatch(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
