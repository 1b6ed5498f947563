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
#include "ucclep/device/ll/lines.hpp"
#include "ucclep/device/ll_dispatch.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/landed_rows.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Verb of members of a scope that are near: ids, weights, source and scales of a row at `index` of the output.
template <class Coop>
UCCLEP_FN bool take_rest(const OpenDispatch& open, const DispatchRows& out, const LandedRow& row, const Segment& at,
                         uint32_t place, uint32_t index) {
  const uint32_t top_k = open.shape.top_k, scale_bytes = open.shape.scale_bytes;
  for (uint32_t k = Near<Coop>::rank(); k < top_k; k += Near<Coop>::size()) {
    if (!open.by_expert()) {
      store_topk(open, out, index, k, {row.expert(k), row.weight(k), 0});
    } else if (out.topk_weights && row.local_expert(k) == at.zone) {
      out.topk_weights[index] = row.weight(k);
    }
  }
  if (out.src_info && Near<Coop>::rank() == 0) out.src_info[index] = int64_t{at.source} << 32 | row.token();
  if (open.by_expert()) {
    note_copies<Coop>(open, row, place, at.zone,
                      [&](uint32_t expert) { return KeptCounts{open.memory()}.base(row.source, expert); });
  }
  for (uint32_t b = 8 * Near<Coop>::rank(); out.scales && b < scale_bytes; b += 8 * Near<Coop>::size()) {
    if (row.lines && !wait_lines(row.op, Phase::rows, at.source, row.scales, b, b + 8)) return false;
    store_scale_word(row_at(out.scales, index, scale_bytes), b, scale_bytes, row.word(row.scales, b));
  }
  return true;
}

constexpr uint32_t received_batches = 4;  // of a row in LINE form that a warp has under way

// Verb of members of a scope that are near: part of the tokens of a row.
template <class Coop>
UCCLEP_FN bool take_tokens(const OpenDispatch& open, const LandedRow& row, const RowParts& parts, uint32_t part,
                           char* to) {
  const WireShape& wire = open.wire;
  const BatchRange range = parts.range(part);
  if (!row.lines) {
    const uint32_t all = range.end * wire.batch_bytes, end = all < wire.token_bytes ? all : wire.token_bytes;
    const uint32_t begin = range.begin * wire.batch_bytes;
    copy_vectors<Near<Coop>>(to + begin, row.tokens + begin, end - begin);
    return true;
  }
  if constexpr (whole_warps<Coop>) {
    LineSpan<false, received_batches> span;
    span.cover(wire, range);
    const char* const lines = row.tokens + range.begin * LineBatch::lines * line_bytes;
    span.peek(wire, lines);
    if (!span.receive(row.op, row.source, wire, lines, [&](uint32_t i) { span.write(wire, to, i); })) return false;
  } else {
    for (uint32_t b = 8 * Coop::rank(); b < wire.token_bytes; b += 8 * Coop::size()) {
      if (!wait_lines(row.op, Phase::rows, row.source, row.tokens, b, b + 8)) return false;
      *reinterpret_cast<uint64_t*>(to + b) = line_word(row.tokens, b);
    }
  }
  return true;
}

// Verb of members of a scope: the rows of a segment. A block's warps take parts of rows.
template <class Coop>
UCCLEP_FN bool take_rows(const OpenDispatch& open, const Op& op, const DispatchRows& out, const Segment& at) {
  const RowParts parts = RowParts::of_size(open.wire.batches, whole_warps<Coop> ? received_batches : open.wire.batches);
  const uint32_t count = parts.count, items = (at.end - at.begin) * count, tokens = open.handle.view.tokens;
  for (uint32_t item = Near<Coop>::index(); item < items; item += Near<Coop>::count()) {
    const uint32_t row = at.begin + item / count, part = item % count;
    const uint32_t place =
        open.by_expert() ? load_relaxed<Scope::gpu>(open.memory().row_homes(at.zone) + row) % tokens : row;
    uint32_t where = place;
    if (lies_by_token(op, at) && !find_token(op, at.source, place, where)) return false;
    const LandedRow landed(open, op, at.source, at.facts, where);
    const uint32_t index = at.zone * rows_of_zone(open) + row;
    if ((part == 0 || !landed.lines) && !landed.wait_meta()) return false;
    if (part == 0 && !take_rest<Coop>(open, out, landed, at, place, index)) return false;
    char* const to = row_at(out.tokens, index, open.wire.token_bytes);
    if (out.tokens && !take_tokens<Coop>(open, landed, parts, part, to)) return false;
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
  return end_received(open, op);
}

// Verb of the scope, after dispatch_end: waits until everybody has said what comes. rows: of the slab of a local expert
// (EXPERT_MAJOR) or of a source (RANK_MAJOR). lanes<N>: all groups of a warp call it together; a zone that does not
// exist has no rows. False: the operation has failed, or ranks disagree and nothing comes.
// Registers: 76 (sm_90a), 45 (gfx942).
template <class Coop>
UCCLEP_FN bool dispatch_rows(Coop, const OpenDispatch& open, uint32_t zone, uint32_t& rows) {
  rows = 0;
  const Op op = open.op();
  if (!may_receive<Coop>(open, op)) return false;
  const HeaderResult result = agree<Coop>(open, op, [&] { return keep_counts<Coop>(open, op); });
  if (result == HeaderResult::lost || !was_sound<Coop>(op)) return false;
  const KeptCounts kept{open.memory()};
  const bool good = result == HeaderResult::good;
  if (good && zone < zones_of(open)) rows = kept.rows_of_zone(open, zone);
  return count_rows_received<Coop>(open, op, 0, good ? kept.all() : 0, good) && good;
}

// Verb of the scope, after dispatch_end: rows [first, last) of the output, counted over all its leading dimensions, to
// `out`; waits until they are there, at most the group's timeout. Rows that hold nothing are passed over in
// EXPERT_MAJOR, and say so in RANK_MAJOR. Every row that holds something is asked for exactly once, by any scope, in
// any order and block. lanes<N>: all groups of a warp call it together, with first = last where there is nothing to do.
// False: the operation has failed, or ranks disagree and nothing comes.
// Registers: 126 (sm_90a), 120 (gfx942).
template <class Coop>
UCCLEP_FN bool dispatch_recv(Coop, const OpenDispatch& open, const DispatchRows& out, uint32_t first, uint32_t last) {
  const Op op = open.op();
  if (!may_receive<Coop>(open, op)) return false;
  const HeaderResult result = agree<Coop>(open, op, [&] { return keep_counts<Coop>(open, op); });
  if (result == HeaderResult::lost) return false;
  const KeptCounts kept{open.memory()};
  const bool good = result == HeaderResult::good;
  uint32_t received = 0;
  const uint32_t zone_rows = rows_of_zone(open), most = zones_of(open) * zone_rows, end = last < most ? last : most;
  const auto each = [&](auto&& body) {
    for (uint32_t zone = first / zone_rows; good && zone * zone_rows < end; ++zone) {
      const uint32_t begin = zone * zone_rows, from = first > begin ? first - begin : 0;
      if (!each_segment(open, zone, from, end - begin, body)) return false;
      const uint32_t rows = kept.rows_of_zone(open, zone);
      const uint32_t unused = from > rows ? from : rows, rest = end - begin < zone_rows ? end - begin : zone_rows;
      if (!open.by_expert()) mark_unused<Coop>(open, out, begin + unused, begin + rest);
    }
    return true;
  };
  bool ok = !open.by_expert() || each([&](const Segment& at) { return find_rows<Coop>(open, op, at); });
  if (Coop::any(!ok)) return false;
  Coop::sync();  // what one member has found, all have
  if (open.by_expert()) each([&](const Segment& at) { return note_found<Coop>(open, op, at), true; });
  ok = each([&](const Segment& at) {
    received += at.end - at.begin;
    return take_rows<Coop>(open, op, out, at);
  });
  if (Coop::any(!ok) || !was_sound<Coop>(op)) return false;
  return count_rows_received<Coop>(open, op, received, good ? kept.all() : 0, good) && good;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
