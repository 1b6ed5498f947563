// SPDX-License-Identifier: Apache-2.0
// Headers of LL dispatch read where they lie: a warp asks about its row itself, all at once, while the row's lines
// come. A block's tables (ll_inbox.hpp) take longer to fill than a warp needs for its question, but answer any number
// of them: they are for many ranks, of whose tokens few come here. Which row a warp has does not depend on what comes:
// it goes through the tokens of all sources, and skips those that have no row here.
//
// Floor of what follows the headers: one read of the row's bits, meta and lines, one of the counts of lower sources.
#pragma once
#include "ucclep/device/ll_inbox.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

struct ByHeaders {
  const Inbox inbox;
  uint32_t token, place = 0;

  // index: the token's number.
  UCCLEP_FN ByHeaders(const Op&, const Inbox& inbox, uint32_t, uint32_t index)
      : inbox(inbox.without_tables()), token(index) {}

  // Warp verb: does the row come here? After this its place is known.
  UCCLEP_FN bool find(const Op& op, uint32_t source) {
    uint64_t present = 0;  // lane i: bits of tokens 64 i .. 64 i + 63
    if (lane_id() < HeaderLayout::present_packets(inbox.facts[source].tokens)) {
      present = load_packet(present_packet(op, source, lane_id())).value;
    }
    const uint32_t first = 64 * lane_id();
    const uint64_t before = token >= first + 64 ? ~uint64_t{0}
                            : token > first     ? (uint64_t{1} << (token - first)) - 1
                                                : 0;
    const bool here = lane_id() == token / 64 && (present >> token % 64 & 1) != 0;
    place = reduce_add(static_cast<uint32_t>(count_lanes(present & before)));
    return ballot(here) != 0;
  }
};

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
