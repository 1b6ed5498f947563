// SPDX-License-Identifier: Apache-2.0
// HT entry points.
#include "ucclep/device/high_throughput.hpp"

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

}  // namespace UCCLEP_SIMT_NAMESPACE
