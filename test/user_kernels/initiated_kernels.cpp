// SPDX-License-Identifier: Apache-2.0
// A scope of less than a warp. Compiled once per wave size.
#include "initiated_scopes.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(round_lanes4, RoundArgs) {
  whole_round<lanes<4>>(args);
}
UCCLEP_KERNEL(round_ht_lanes4, RoundArgs) {
  whole_routed_round<lanes<4>>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
