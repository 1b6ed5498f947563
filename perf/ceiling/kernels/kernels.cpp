// SPDX-License-Identifier: Apache-2.0
// Entry points.
#include "ceiling/kernels/cast_lines.hpp"
#include "ceiling/kernels/flags.hpp"
#include "ceiling/kernels/lines.hpp"
#include "ceiling/kernels/pull.hpp"
#include "ceiling/kernels/push.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ceiling_meet, CeilingFlagArgs) {
  meet_ranks(args);
}
UCCLEP_KERNEL(ceiling_flag_ordered, CeilingFlagArgs) {
  pass_flag<OrderedFlag>(args);
}
UCCLEP_KERNEL(ceiling_flag_bare, CeilingFlagArgs) {
  pass_flag<BareFlag>(args);
}
UCCLEP_KERNEL(ceiling_push, CeilingCopyArgs) {
  push_rows(args);
}
UCCLEP_KERNEL(ceiling_pull, CeilingCopyArgs) {
  pull_rows(args);
}
UCCLEP_KERNEL(ceiling_ll_dispatch, CeilingCopyArgs) {
  for (uint32_t i = 0; i < args.rounds; ++i) {
    const LineRound round(args, i);
    send_tokens(round);
    if (!receive_rows(round)) return round.give_up();
  }
}
UCCLEP_KERNEL(ceiling_ll_dispatch_cast, CeilingCopyArgs) {
  for (uint32_t i = 0; i < args.rounds; ++i) {
    const LineRound round(args, i);
    send_cast(round);
    if (!receive_cast(round)) return round.give_up();
  }
}
UCCLEP_KERNEL(ceiling_ll_combine, CeilingCopyArgs) {
  for (uint32_t i = 0; i < args.rounds; ++i) {
    const LineRound round(args, i);
    return_rows(round);
    if (!sum_rows(round)) return round.give_up();
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
