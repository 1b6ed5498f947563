// SPDX-License-Identifier: Apache-2.0
// The other scopes. Compiled once per wave size.
#include "initiated_scopes.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(round_thread, RoundArgs) {
  whole_round<thread>(args);
}
UCCLEP_KERNEL(round_warp, RoundArgs) {
  whole_round<warp>(args);
}
UCCLEP_KERNEL(round_block, RoundArgs) {
  whole_round<block>(args);
}
UCCLEP_KERNEL(round_ht_thread, RoundArgs) {
  whole_routed_round<thread>(args);
}
UCCLEP_KERNEL(round_ht_warp, RoundArgs) {
  whole_routed_round<warp>(args);
}
UCCLEP_KERNEL(round_ht_block, RoundArgs) {
  whole_routed_round<block>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
