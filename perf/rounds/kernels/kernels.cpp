// SPDX-License-Identifier: Apache-2.0
// Entry points: rounds_MODE_SCOPE; of whole operations of LL by lines alone rounds_ll_grid_lines.
#include "rounds/kernels/rounds.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(rounds_ll_grid, WholeRoundsArgs) {
  whole_rounds_ll<ll::AnyForm>(args);
}
UCCLEP_KERNEL(rounds_ll_grid_lines, WholeRoundsArgs) {
  whole_rounds_ll<ll::LinesOnly>(args);
}
UCCLEP_KERNEL(rounds_ll_block, RoundsArgs) {
  rounds_ll<block>(args);
}
UCCLEP_KERNEL(rounds_ll_warp, RoundsArgs) {
  rounds_ll<warp>(args);
}
UCCLEP_KERNEL(rounds_ht_grid, WholeRoundsArgs) {
  whole_rounds_ht(args);
}
UCCLEP_KERNEL(rounds_ht_block, RoundsArgs) {
  rounds_ht<block>(args);
}
UCCLEP_KERNEL(rounds_ht_warp, RoundsArgs) {
  rounds_ht<warp>(args);
}
UCCLEP_KERNEL(rounds_bare, BareRoundsArgs) {
  bare_rounds(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
