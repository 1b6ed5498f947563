// SPDX-License-Identifier: Apache-2.0
// LL dispatch received by a user's kernel, the one that sent it: who computes with some rows waits for these alone.
//
//   ll::dispatch_rows(warp{}, op, zone, rows);              how many rows of an expert, or of a source, there are
//   ll::dispatch_recv(block{}, op, out, first, last);       rows [first, last) of the output, each once
// after dispatch_end in the same block, instead of ucclEpCompleteDispatch (user/receive.hpp says when the operation
// ends). All ranks may do so, or some.
//
// | who writes                         | who reads                      | ordered by               |
// |------------------------------------|--------------------------------|--------------------------|
// | the peers' rows, metas and headers | dispatch_recv                  | as in CompleteDispatch   |
// | dispatch_recv: the output          | the scope, after it            | the scope's sync         |
// | dispatch_recv: what combine needs  | combine_send, the host's calls | the end of the operation |
//
// The headers are read by the first call. The metas of a source, in which stands which experts its rows are for, are
// read by those that ask for one of its rows (EXPERT_MAJOR): warps share them out, and note in the handle's memory what
// the others want to know. Floor: as dispatch's (ll/lines.hpp).
#pragma once
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/lines.hpp"
#include "ucclep/device/ll_dispatch.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/kept_counts.hpp"
#include "ucclep/device/user/landed_rows.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Verb of members that are near: a row's scales.
template <class Coop>
UCCLEP_FN bool take_scales(const OpenDispatch& open, const DispatchRows& out, const LandedRow& row, uint32_t index) {
  const uint32_t scale_bytes = open.shape.scale_bytes;
  for (uint32_t b = 8 * Near<Coop>::rank(); out.scales && b < scale_bytes; b += 8 * Near<Coop>::size()) {
    if (row.lines && !wait_lines(row.op, Phase::rows, row.source, row.scales, b, b + 8)) return false;
    store_scale_word(row_at(out.scales, index, scale_bytes), b, scale_bytes, row.word(row.scales, b));
  }
  return true;
}

// Verb of less than a warp: ids, weights, source and scales of a row at `index` of the output.
template <class Coop>
UCCLEP_FN bool take_rest(const OpenDispatch& open, const DispatchRows& out, const LandedRow& row, const Segment& at,
                         uint32_t place, uint32_t index) {
  const uint32_t top_k = open.shape.top_k;
  for (uint32_t k = Coop::rank(); k < top_k; k += Coop::size()) {
    if (!open.by_expert()) {
      store_topk(open, out, index, k, {row.expert(k), row.weight(k), 0});
    } else if (out.topk_weights && row.local_expert(k) == at.zone) {
      out.topk_weights[index] = row.weight(k);
    }
  }
  if (out.src_info && Coop::rank() == 0) out.src_info[index] = int64_t{at.source} << 32 | row.token();
  if (open.by_expert()) {
    note_copies<Coop>(open, row, place,
                      [&](uint32_t expert) { return KeptCounts{open.memory()}.base(row.source, expert); });
  }
  return take_scales<Coop>(open, out, row, index);
}

// The meta of a row in LINE form, in the registers of a warp. Lanes ask together.
struct MetaOfWarp {
  LineBatch batch;

  UCCLEP_FN void peek(const LandedRow& row) { batch.peek(row.meta, row.layout().body_bytes()); }
  // After peek: waits until it is there.
  UCCLEP_FN bool receive(const LandedRow& row) {
    const uint32_t bytes = row.layout().body_bytes();
    return wait_peer_warp(row.op, Phase::rows, row.source, [&] {
      if (batch.arrived(bytes, row.op.seq)) return true;
      peek(row);
      return false;
    });
  }
  // Each lane's word.
  UCCLEP_FN uint32_t word(uint32_t at) const {
    const uint32_t in_line = at % line_payload, packet = at / line_payload * line_lanes + in_line / sizeof(Packet);
    uint64_t found = 0;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < LineBatch::steps; ++s) {
      const uint64_t low = shfl(batch.part[s].value, packet % wave_size);
      const uint64_t high = shfl(batch.part[s].epoch, packet % wave_size);
      if (packet / wave_size == s) found = in_line % sizeof(Packet) < 8 ? low : high;
    }
    return static_cast<uint32_t>(found >> 8 * (at % 8));
  }
  // Lane k's selection.
  UCCLEP_FN ReceivedSelection selection(const MetaLayout& layout, uint32_t top_k) const {
    const uint32_t k = lane_id() < top_k ? lane_id() : 0;
    const uint32_t pair = word(layout.experts + 2 * k / 4 * 4);
    const ReceivedSelection s{static_cast<int32_t>(pair >> 16 * (k % 2) & 0xffff),
                              float_of(word(layout.weights + 4 * k)), word(layout.positions + 4 * k)};
    return lane_id() < top_k && s.expert != no_expert ? s : ReceivedSelection{};
  }
};
static_assert(MetaLayout::of(max_top_k).bytes <= line_batch_bytes);

// Warp verb: ids, weights and source of a row at `index` of the output, of which lane k has selection k; and what
// combine needs to know of it (EXPERT_MAJOR).
UCCLEP_FN void take_meta(const OpenDispatch& open, const Op& op, const DispatchRows& out, const Segment& at,
                         const Arrival& row, const ReceivedSelection& s, uint32_t index) {
  uint32_t expert = not_here;
  if (!is_mine(op, s, expert)) expert = not_here;
  if (out.src_info && lane_id() == 0) out.src_info[index] = int64_t{row.source} << 32 | row.token;
  if (!open.by_expert()) {
    if (lane_id() < open.shape.top_k) store_topk(open, out, index, lane_id(), s);
    return;
  }
  if (out.topk_weights && expert == at.zone) out.topk_weights[index] = s.weight;
  const CopyOrder order = CopyOrder::among_lanes(expert);
  const KeptCounts kept{open.memory()};
  keep_copy(open, row.source, row.place, lane_id(), order,
            {expert == not_here ? 0 : row_number(uint64_t{kept.base(row.source, expert)} + s.position), expert,
             s.weight, lane_id()});
}

// Warp verb: waits for the meta of a row, in BULK form with it for the row. selection: lane k's. token: of a row that
// lies by token it is known before.
UCCLEP_FN bool receive_selection(const LandedRow& row, ReceivedSelection& selection, uint32_t& token) {
  const uint32_t top_k = row.op.group.shape.top_k, k = lane_id();
  if (row.lines) {
    MetaOfWarp meta;
    meta.peek(row);
    if (!meta.receive(row)) return false;
    selection = meta.selection(row.layout(), top_k);
    return true;
  }
  if (!every_lane(row.wait_meta())) return false;
  if (k < top_k) selection = {row.expert(k), row.weight(k), row.position(k)};
  token = row.token();
  return true;
}

constexpr uint32_t received_batches = 4;  // of a row in LINE form that a warp has under way

// Warp verb: a part of a row that has been found, with part 0 what belongs to it.
UCCLEP_FN bool take_part(const OpenDispatch& open, const Op& op, const DispatchRows& out, const Segment& at,
                         const LandedRow& landed, const FoundRow& found, const RowParts& parts, uint32_t part,
                         uint32_t index) {
  const WireShape& wire = open.wire;
  const BatchRange range = parts.range(part);
  const char* const lines = landed.tokens + range.begin * LineBatch::lines * line_bytes;
  LineSpan<false, received_batches> span;
  if (landed.lines) {
    span.cover(wire, range);
    span.peek(wire, lines);  // on their way while the meta is read
  }
  if (part == 0) {
    ReceivedSelection s;
    uint32_t token = found.where;
    if (!receive_selection(landed, s, token)) return false;
    take_meta(open, op, out, at, {at.source, found.place, token}, s, index);
    if (!every_lane(take_scales<warp>(open, out, landed, index))) return false;
  } else if (!landed.lines && !every_lane(landed.wait_meta())) {
    return false;
  }
  if (!out.tokens) return true;
  char* const to = row_at(out.tokens, index, wire.token_bytes);
  if (landed.lines) {
    return span.receive(op, at.source, wire, lines, [&](uint32_t i) { span.write(wire, to, i); });
  }
  const uint32_t begin = range.begin * wire.batch_bytes, all = range.end * wire.batch_bytes;
  copy_vectors<warp>(to + begin, landed.tokens + begin, (all < wire.token_bytes ? all : wire.token_bytes) - begin);
  return true;
}

// Verb of less than a warp: the tokens of a row.
template <class Coop>
UCCLEP_FN bool take_tokens(const OpenDispatch& open, const LandedRow& row, char* to) {
  const uint32_t bytes = open.wire.token_bytes;
  if (!row.lines) {
    copy_vectors<Coop>(to, row.tokens, bytes);
    return true;
  }
  UCCLEP_KEEP_LOOP
  for (uint32_t b = 8 * Coop::rank(); b < bytes; b += 8 * Coop::size()) {
    if (!wait_lines(row.op, Phase::rows, row.source, row.tokens, b, b + 8)) return false;
    *reinterpret_cast<uint64_t*>(to + b) = line_word(row.tokens, b);
  }
  return true;
}

// Verb of members of a scope: the rows of a segment. A block's warps take parts of rows.
template <class Coop>
UCCLEP_FN bool take_rows(const OpenDispatch& open, const Op& op, const DispatchRows& out, const Segment& at) {
  const uint32_t first = at.zone * rows_of_zone(open), rows = at.end - at.begin;
  FoundRow found;
  if constexpr (whole_warps<Coop>) {
    const RowParts parts = RowParts::of<received_batches>(open.wire.batches, rows, Near<Coop>::count());
    const uint32_t count = parts.count;
    UCCLEP_KEEP_LOOP
    for (uint32_t item = Near<Coop>::index(); item < rows * count; item += Near<Coop>::count()) {
      const uint32_t row = at.begin + item / count;
      if (!every_lane(find_row(open, op, at, row, found))) return false;
      const LandedRow landed(open, op, at.source, at.facts, found.where);
      if (!take_part(open, op, out, at, landed, found, parts, item % count, first + row)) return false;
    }
  } else {
    UCCLEP_KEEP_LOOP
    for (uint32_t row = at.begin; row < at.end; ++row) {
      if (!find_row(open, op, at, row, found)) return false;
      const LandedRow landed(open, op, at.source, at.facts, found.where);
      if (!landed.wait_meta() || !take_rest<Coop>(open, out, landed, at, found.place, first + row)) return false;
      if (out.tokens && !take_tokens<Coop>(open, landed, row_at(out.tokens, first + row, open.wire.token_bytes))) {
        return false;
      }
    }
  }
  return true;
}

// Verb of the scope: `rows` of `all` are there; ends the operation with the last. good: ranks agree, and they have
// come.
template <class Coop>
UCCLEP_FN bool count_rows_received(const OpenDispatch& open, const Op& op, uint32_t rows, uint32_t all, bool good) {
  Coop::sync();
  if (!Coop::any(Coop::rank() == 0 && count_received(open, Kind::dispatch, rows, all))) return true;
  if (Coop::rank() != 0) return true;
  HandleState* const state = open.memory().state();
  state->weighted = open.settings.weights_at_dispatch;
  state->updated = good ? open.handle.view.stamp : 0;
  if (!good) state->rows = 0;
  if (good) keep_recv_base(open.memory());
  return end_received(open, op);
}

constexpr uint64_t not_counted = ~uint64_t{0};

// Verb of the scope, after dispatch_end: waits until everybody has said what comes. rows: of the slab of a local expert
// (EXPERT_MAJOR) or of a source (RANK_MAJOR). lanes<N>: all groups of a warp call it together; a zone that does not
// exist has no rows. False: the operation has failed, or ranks disagree and nothing comes.
// Registers: 128 and 408 bytes of stack (sm_90a), 92 (gfx942).
template <class Coop>
UCCLEP_FN bool dispatch_rows(Coop, const OpenDispatch& open, uint32_t zone, uint32_t& rows) {
  const uint64_t counted = in_group_of(open.op(), [=](const Op& op) -> uint64_t {
    if (!may_receive<Coop>(open, op)) return not_counted;
    const HeaderResult result = what_comes<Coop>(open, op);
    if (result == HeaderResult::lost || !was_sound<Coop>(op)) return not_counted;
    const KeptCounts kept{open.memory()};
    const bool good = result == HeaderResult::good;
    const uint32_t here = good && zone < zones_of(open) ? kept.rows_of_zone(open, zone) : 0;
    const bool ended = count_rows_received<Coop>(open, op, 0, good ? kept.all() : 0, good);
    return ended && good ? here : not_counted;
  });
  rows = counted == not_counted ? 0 : static_cast<uint32_t>(counted);
  return counted != not_counted;
}

template <class Coop>
UCCLEP_FN bool receive_range(const OpenDispatch& open, const Op& op, const DispatchRows& out, uint32_t first,
                             uint32_t last) {
  if (!may_receive<Coop>(open, op)) return false;
  const HeaderResult result = what_comes<Coop>(open, op);
  if (result == HeaderResult::lost) return false;
  const KeptCounts kept{open.memory()};
  const bool good = result == HeaderResult::good;
  uint32_t received = 0;
  const uint32_t zone_rows = rows_of_zone(open), most = zones_of(open) * zone_rows, end = last < most ? last : most;
  const auto each = [&](auto&& body) {
    for (uint32_t zone = first / zone_rows; good && zone * zone_rows < end; ++zone) {
      const uint32_t begin = zone * zone_rows, from = first > begin ? first - begin : 0;
      if (!each_segment<Coop>(open, zone, from, end - begin, body)) return false;
      if (open.by_expert()) continue;
      const uint32_t rows = kept.rows_of_zone(open, zone);
      const uint32_t unused = from > rows ? from : rows, rest = end - begin < zone_rows ? end - begin : zone_rows;
      mark_unused<Coop>(open, out, begin + unused, begin + rest);
    }
    return true;
  };
  const auto take = [&](const Segment& at) {
    received += at.end - at.begin;
    return take_rows<Coop>(open, op, out, at);
  };
  bool ok = true;
  if constexpr (whole_warps<Coop>) {
    ok = each([&](const Segment& at) {
      const bool finds = open.by_expert() && !at.indexed;
      return (!finds || !Coop::any(!find_rows<Coop>(open, op, at))) && take(at);  // what one has found, all have
    });
  } else {
    ok = !open.by_expert() || each([&](const Segment& at) { return find_rows<Coop>(open, op, at); });
    if (Coop::any(!ok)) return false;
    Coop::sync();  // what one member has found, all have
    if (open.by_expert()) each([&](const Segment& at) { return note_found<Coop>(open, op, at), true; });
    ok = each(take);
  }
  if (Coop::any(!ok) || !was_sound<Coop>(op)) return false;
  return count_rows_received<Coop>(open, op, received, good ? kept.all() : 0, good) && good;
}

// Verb of the scope, after dispatch_end: rows [first, last) of the output, counted over all its leading dimensions, to
// `out`; waits until they are there, at most the group's timeout. Rows that hold nothing are passed over in
// EXPERT_MAJOR, and say so in RANK_MAJOR. Every row that holds something is asked for exactly once, by any scope, in
// any order and block. lanes<N>: all groups of a warp call it together, with first = last where there is nothing to do.
// False: the operation has failed, or ranks disagree and nothing comes.
// Registers: 128 and 1200 bytes of stack (sm_90a), 175 and 480 bytes of stack (gfx942).
template <class Coop>
UCCLEP_FN bool dispatch_recv(Coop, const OpenDispatch& open, const DispatchRows& out, uint32_t first, uint32_t last) {
  return in_group_of(open.op(), [=](const Op& op) { return receive_range<Coop>(open, op, out, first, last); });
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
