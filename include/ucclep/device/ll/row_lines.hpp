// SPDX-License-Identifier: Apache-2.0
// Where the lines of a row of an LL dispatch lie (LINE form, ll/lines.hpp): at the number of its token.
#pragma once
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// How many lines the parts of a row take.
struct RowLines {
  WarpUniform meta, tokens, scales;

  static UCCLEP_FN RowLines of(const GroupShape& shape, const WireShape& wire) {
    const auto holding = [](uint32_t bytes) { return (bytes + line_payload - 1) / line_payload; };
    RowLines lines{holding(MetaLayout::of(shape.top_k).body_bytes()), holding(wire.token_bytes), 0};
    if (wire.batch_scale_bytes != 0) {
      lines.tokens = wire.batches * LineBatch::lines;
    } else if (wire.scale_count != 0) {
      lines.scales = holding(wire.scale_bytes());
    }
    return lines;
  }
  UCCLEP_FN uint32_t all() const { return meta + tokens + scales; }
  UCCLEP_FN uint32_t batch(uint32_t index) const { return (meta + index * LineBatch::lines) * line_bytes; }
};

// P15: LINE when all rows of the operation fit the LINE landing of one receiver, whatever the routing.
UCCLEP_FN Form form_of(const GroupShape& shape, const WireShape& wire, uint32_t tokens) {
  const uint64_t bytes = uint64_t{tokens} * RowLines::of(shape, wire).all() * line_bytes;
  return bytes <= shape.line_capacity ? Form::line : Form::bulk;
}

// Addresses of which lanes have one each.
struct Addresses {
  bool active;
  char* own;

  // Warp verb: all lanes store to each of them.
  template <class Store>
  UCCLEP_FN void each(Store&& store) const {
    for (uint64_t left = ballot(active); left != 0; left &= left - 1) {
      store(reinterpret_cast<char*>(broadcast(reinterpret_cast<uint64_t>(own), first_lane(left))));
    }
  }
};

// The lines of one token at every rank that gets it: lane k's, if its selection sends.
UCCLEP_FN Addresses lines_of_token(const Op& op, const RowLines& lines, uint32_t token, const Selection& selection) {
  const bool sends = selection.sends();
  char* landing = op.window(sends ? selection.rank : op.me()) + op.group.layout.ll_lines_of(op.slot, op.me());
  return {sends, landing + uint64_t{token} * lines.all() * line_bytes};
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
