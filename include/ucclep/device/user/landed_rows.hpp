// SPDX-License-Identifier: Apache-2.0
// What a user's kernel that receives a dispatch of LL knows of its rows: where each has landed (LandedRow), and, in
// EXPERT_MAJOR, which of them an expert's are. A source that has sent an index of them says so (user/routing.hpp). Of
// others each row's meta is read by one warp, which notes whose it is (find_rows).
//
// clang-format off
// | who writes                          | who reads                   | ordered by                                  |
// |-------------------------------------|-----------------------------|---------------------------------------------|
// | note_row_at: whose a row is         | find_rows of all scopes     | the row's word: the same, after sync_warp   |
// clang-format on
#pragma once
#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/ll/row_lines.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/kept_counts.hpp"
#include "ucclep/device/user/network.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/routing.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"
#include "ucclep/device/user/waits.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Lane verb: does a token of `source` come, and as which of its rows.
UCCLEP_FN bool find_place(const Op& op, uint32_t source, uint32_t token, bool& comes, uint32_t& place) {
  place = 0;
  UCCLEP_KEEP_LOOP
  for (uint32_t i = 0; i <= token / 64; ++i) {
    uint64_t bits = 0;
    if (!await_packet(op, Phase::header, source, present_packet(op, source, i), bits)) return false;
    comes = (bits >> token % 64 & 1) != 0;
    if (i == token / 64) bits &= (uint64_t{1} << token % 64) - 1;
    place += static_cast<uint32_t>(count_lanes(bits));
  }
  return true;
}
// The other way: which token its row at `place` is.
UCCLEP_FN bool find_token(const Op& op, uint32_t source, uint32_t place, uint32_t& token) {
  for (uint32_t i = 0;; ++i) {
    uint64_t bits = 0;
    if (!await_packet(op, Phase::header, source, present_packet(op, source, i), bits)) return false;
    const auto here = static_cast<uint32_t>(count_lanes(bits));
    if (place >= here) {
      place -= here;
      continue;
    }
    for (; place > 0; --place) bits &= bits - 1;
    token = 64 * i + first_lane(bits);
    return true;
  }
}

// A row of `source` where it has landed: by its token, by its place where it was counted before it left, or, from
// another domain, in the order of sending, of which the header says where each place is.
struct LandedRow {
  const Op& op;
  uint32_t source;
  const char *meta, *tokens, *scales;
  bool lines, remote;
  uint32_t arrived = 0;          // from another domain: as which row
  const Packet* said = nullptr;  // of the place; NULL: the meta has the positions

  UCCLEP_FN LandedRow(const OpenDispatch& open, const Op& op, uint32_t source, const HeaderFacts& facts, uint32_t index)
      : op(op),
        source(source),
        lines(!op.may.bulk || facts.form == Form::line),
        remote(network::is_remote(op, source)) {
    const WindowLayout& window = op.group.layout;
    if (remote) {
      land_remote(open, facts, index);
    } else if (lines) {
      const RowLines parts = RowLines::of(op.group.shape, open.wire);
      meta = op.mine() + window.ll_lines_of(op.slot, source) + uint64_t{index} * parts.all() * line_bytes;
      tokens = meta + parts.meta * line_bytes;
      scales = tokens + parts.tokens * line_bytes;
    } else {
      meta = op.mine() + window.ll_meta_of(op.slot, source) + uint64_t{index} * layout().bytes;
      tokens = op.mine() + window.ll_rows_of(op.slot, source) + uint64_t{index} * open.wire.row_bytes;
      scales = tokens + open.wire.token_bytes;
    }
  }
  UCCLEP_FN void land_remote(const OpenDispatch& open, const HeaderFacts& facts, uint32_t place) {
    const GroupShape& shape = op.group.shape;
    if (by_token(facts.form)) {
      const uint32_t first = HeaderLayout::places(shape.local_experts(), facts.tokens);
      said = network::header_from(op, source) + first + uint64_t{place} * HeaderLayout::place_packets(shape.top_k);
    }
    arrived = said != nullptr ? said_word(0) : place;
    meta = network::mine(op) + op.group.layout.in_rows_of(shape, op.slot, source) +
           arrived * network_row_bytes(shape, open.wire.row_bytes);
    tokens = meta + layout().bytes;
    scales = tokens + open.wire.token_bytes;
  }
  UCCLEP_FN uint32_t said_word(uint32_t i) const {
    return static_cast<uint32_t>(load_packet(said + i / 2).value >> 32 * (i % 2));
  }
  UCCLEP_FN MetaLayout layout() const { return MetaLayout::of(op.group.shape.top_k); }

  // Lane verb: waits for the meta, in BULK form with it for the row.
  UCCLEP_FN bool wait_meta() const {
    if (remote) return network::wait_row(op, source, arrived);
    if (lines) return wait_lines(op, Phase::rows, source, meta, 0, layout().body_bytes());
    return await_word(op, Phase::rows, source, meta + layout().epoch);
  }
  // Lane verb: 8 bytes of a part that is there.
  UCCLEP_FN uint64_t word(const char* part, uint32_t at) const {
    return lines ? line_word(part, at) : *reinterpret_cast<const uint64_t*>(part + at);
  }
  // Lane verbs, after wait_meta.
  UCCLEP_FN uint32_t meta_word(uint32_t at) const {
    return static_cast<uint32_t>(word(meta, at / 8 * 8) >> 8 * (at % 8));
  }
  UCCLEP_FN uint32_t token() const { return meta_word(0); }
  UCCLEP_FN uint32_t position(uint32_t k) const {
    return said != nullptr ? said_word(1 + k) : meta_word(layout().positions + 4 * k);
  }
  UCCLEP_FN float weight(uint32_t k) const { return float_of(meta_word(layout().weights + 4 * k)); }
  UCCLEP_FN int32_t expert(uint32_t k) const {
    const auto id = static_cast<uint16_t>(meta_word(layout().experts + 2 * k));
    return id == no_expert ? -1 : id;
  }
  // Of selection k.
  UCCLEP_FN uint32_t local_expert(uint32_t k) const {
    uint32_t local = 0;
    return is_mine(op, {expert(k), 0, 0}, local) ? local : not_here;
  }
};

// Rows of the output that come from one source: rows [begin, end) of a zone, the slab of an expert or the rows of a
// source, whose first of this source is `base`, of which there are `count`.
struct Segment {
  uint32_t zone, source, base, count, begin, end;
  HeaderFacts facts;
  bool indexed;  // its source has sent an index

  // Verb of whole warps: as another lane knows it.
  UCCLEP_FN Segment of_lane(uint32_t lane) const {
    return {zone,
            broadcast(source, lane),
            broadcast(base, lane),
            broadcast(count, lane),
            broadcast(begin, lane),
            broadcast(end, lane),
            {broadcast(facts.rows, lane), broadcast(facts.tokens, lane),
             static_cast<Form>(broadcast(static_cast<uint32_t>(facts.form), lane))},
            broadcast(indexed ? 1u : 0u, lane) != 0};
  }
};

// Do its rows lie by token? From another domain they never do.
UCCLEP_FN bool lies_by_token(const Op& op, const Segment& at) {
  return (!op.may.bulk || by_token(at.facts.form)) && !network::is_remote(op, at.source);
}

// Lane verb: rows [first, last) of a zone that come from a source.
UCCLEP_FN Segment segment_of(const OpenDispatch& open, uint32_t zone, uint32_t source, uint32_t first, uint32_t last) {
  const KeptCounts kept{open.memory()};
  const bool by_expert = open.by_expert();
  Segment segment{zone,
                  source,
                  by_expert ? kept.base(source, zone) : 0,
                  by_expert ? kept.count(source, zone) : kept.rows(source),
                  0,
                  0,
                  kept.facts(source),
                  kept.indexed(source)};
  segment.begin = first > segment.base ? first : segment.base;
  segment.end = last < segment.base + segment.count ? last : segment.base + segment.count;
  return segment;
}

// Verb of members of a scope: body(segment) for all that rows [first, last) of a zone consist of. False: body has said
// so. Lanes of a warp look at the sources together.
template <class Coop, class Body>
UCCLEP_FN bool each_segment(const OpenDispatch& open, uint32_t zone, uint32_t first, uint32_t last, Body&& body) {
  const uint32_t begin = open.by_expert() ? 0 : zone, end = open.by_expert() ? open.handle.group.shape.ranks : zone + 1;
  if constexpr (whole_warps<Coop>) {
    UCCLEP_KEEP_LOOP
    for (uint32_t from = begin; from < end; from += wave_size) {
      Segment mine{};
      if (from + lane_id() < end) mine = segment_of(open, zone, from + lane_id(), first, last);
      UCCLEP_KEEP_LOOP
      for (uint64_t left = ballot(mine.begin < mine.end); left != 0; left &= left - 1) {
        Segment segment = mine.of_lane(first_lane(left));
        segment.zone = zone;
        if (!body(segment)) return false;
      }
    }
  } else {
    UCCLEP_KEEP_LOOP
    for (uint32_t source = begin; source < end; ++source) {
      const Segment segment = segment_of(open, zone, source, first, last);
      if (segment.begin < segment.end && !body(segment)) return false;
    }
  }
  return true;
}

// Rows of a source as they lie here, in which find_rows looks for those of an expert.
struct LandedRows {
  uint64_t* noted;  // [row] the last dispatch of which it has been noted, or the mark of one in which a warp notes it
  uint32_t all;
  bool tokens;  // by token

  static UCCLEP_FN LandedRows of(const OpenDispatch& open, const Op& op, const Segment& at) {
    const bool tokens = lies_by_token(op, at);
    return {open.memory().noted(at.source), tokens ? at.facts.tokens : at.facts.rows, tokens};
  }
  // Lane verbs: does nobody note the row yet; and is it for this warp to note.
  UCCLEP_FN bool is_free(const Op& op, uint32_t index) const {
    return is_free(op, load_relaxed<Scope::gpu>(noted + index));
  }
  UCCLEP_FN bool take(const Op& op, uint32_t index) const {
    uint64_t seen = load_relaxed<Scope::gpu>(noted + index);
    return is_free(op, seen) && compare_exchange<Scope::gpu>(noted + index, seen, mark_of(op));
  }

 private:
  static UCCLEP_FN uint64_t mark_of(const Op& op) { return op.seq | uint64_t{1} << 63; }
  static UCCLEP_FN bool is_free(const Op& op, uint64_t seen) { return seen != op.seq && seen != mark_of(op); }
};

// Lane verb: a selection of a row at `place` of its source stands in the slab of its expert.
UCCLEP_FN void note_home(const OpenDispatch& open, const Segment& at, uint32_t place, uint32_t local_expert,
                         uint32_t position) {
  const HandleMemory memory = open.memory();
  const KeptCounts kept{memory};
  if (local_expert == not_here || position >= kept.count(at.source, local_expert)) return;
  store_relaxed<Scope::gpu>(memory.row_homes(local_expert) + kept.base(at.source, local_expert) + position,
                            at.source * open.handle.view.tokens + place);
}

// Verb of members that are near, each for every step-th selection from its first: the row at `index`, if it comes,
// stands in the slabs of its experts.
UCCLEP_FN bool note_row_at(const OpenDispatch& open, const Op& op, const Segment& at, const LandedRows& rows,
                           uint32_t index, uint32_t first, uint32_t step) {
  bool comes = true;
  uint32_t place = index;
  if (rows.tokens && !find_place(op, at.source, index, comes, place)) return false;
  if (!comes) return true;
  const LandedRow row(open, op, at.source, at.facts, index);
  if (!row.wait_meta()) return false;
  for (uint32_t k = first; k < open.shape.top_k; k += step) {
    note_home(open, at, place, row.local_expert(k), row.position(k));
  }
  return true;
}

// Verb of a warp of several: takes rows that nobody notes yet, and notes them. All warps of a scope count from the same
// row, so that each row is one warp's; each scope counts from another.
template <class Coop>
UCCLEP_FN bool note_free_rows(const OpenDispatch& open, const Op& op, const Segment& at, const LandedRows& rows) {
  const uint32_t first = (Near<Coop>::count() > 1 ? 0 : warp_id() * grid_size()) + block_id();
  UCCLEP_KEEP_LOOP
  for (uint32_t base = Near<Coop>::index() * wave_size; base < rows.all; base += Near<Coop>::count() * wave_size) {
    const uint32_t index = (first + base + lane_id()) % rows.all;
    for (;;) {
      const uint64_t left = ballot(base + lane_id() < rows.all && rows.is_free(op, index));
      if (left == 0) break;
      const uint32_t mine = broadcast(index, first_lane(left));
      if (broadcast(lane_id() == 0 && rows.take(op, mine) ? 1u : 0u, 0) == 0) continue;
      if (!every_lane(note_row_at(open, op, at, rows, mine, lane_id(), wave_size))) return false;
      sync_warp();  // what all lanes have noted is released
      if (lane_id() == 0) store_release<Scope::gpu>(rows.noted + mine, op.seq);
    }
  }
  return true;
}

// Verb of members of a scope: notes whose the rows of a segment's source are, in the slabs of all experts
// (EXPERT_MAJOR). What other calls have noted is passed over, and blocks begin at different rows: those that come
// together share them. Warps take a row each, and wait for those that others have taken: all of them run.
template <class Coop>
UCCLEP_COLD_FN bool find_rows(const OpenDispatch open, const Op op, const Segment at) {
  if (at.indexed) return true;
  const LandedRows rows = LandedRows::of(open, op, at);
  if constexpr (whole_warps<Coop>) {
    if (!note_free_rows<Coop>(open, op, at, rows)) return false;
    const Wait wait = begin_wait_for_blocks(op, op.group.abort_word);
    UCCLEP_KEEP_LOOP
    for (uint32_t i = Coop::rank(); i < rows.all; i += Coop::size()) {
      if (wait_until(wait, [&] { return load_acquire<Scope::gpu>(rows.noted + i) == op.seq; })) continue;
      report_blocks(op, wait);
      return false;
    }
  } else {
    UCCLEP_KEEP_LOOP
    for (uint32_t i = Coop::rank(); i < rows.all; i += Coop::size()) {
      const uint32_t index = (i + block_id()) % rows.all;
      if (load_acquire<Scope::gpu>(rows.noted + index) == op.seq) continue;
      if (!note_row_at(open, op, at, rows, index, 0, 1)) return false;
    }
  }
  return true;
}

// Where a row of the output is: which of its source's rows, and where that lies.
struct FoundRow {
  uint32_t place, where;
};

// Verb of members that are near: of an indexed source its entry says so. Keeps it for combine.
UCCLEP_FN bool find_row(const OpenDispatch& open, const Op& op, const Segment& at, uint32_t row, FoundRow& found) {
  const uint32_t tokens = open.handle.view.tokens;
  if (open.by_expert() && at.indexed) {
    uint64_t entry = 0;
    const Packet* const packet = index_packet(op, op.me(), at.source, at.zone, row - at.base);
    if (!await_packet(op, Phase::rows, at.source, packet, entry)) return false;
    found = {static_cast<uint32_t>(entry >> 32), static_cast<uint32_t>(entry)};
    if (found.place >= at.facts.rows || found.where >= at.facts.tokens) {
      report_count(op, at.source, found.place, at.facts.rows);
      return false;
    }
    store_relaxed<Scope::gpu>(open.memory().row_homes(at.zone) + row, at.source * tokens + found.place);
    return true;
  }
  found.place = open.by_expert() ? load_relaxed<Scope::gpu>(open.memory().row_homes(at.zone) + row) % tokens : row;
  found.where = found.place;
  return !lies_by_token(op, at) || find_token(op, at.source, found.place, found.where);
}

// Verb of less than a warp, after a sync of it: find_rows has noted them.
template <class Coop>
UCCLEP_FN void note_found(const OpenDispatch& open, const Op& op, const Segment& at) {
  if (at.indexed) return;
  const LandedRows rows = LandedRows::of(open, op, at);
  UCCLEP_KEEP_LOOP
  for (uint32_t i = Coop::rank(); i < rows.all; i += Coop::size()) store_release<Scope::gpu>(rows.noted + i, op.seq);
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
