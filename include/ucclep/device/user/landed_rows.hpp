// SPDX-License-Identifier: Apache-2.0
// What a user's kernel that receives a dispatch of LL knows of its rows: how many there are (KeptCounts), where each
// has landed (LandedRow), and, in EXPERT_MAJOR, which of them an expert's are (find_rows). The first call of an
// operation reads the headers for all others. Each row's meta is read by one warp, which notes whose it is.
//
// clang-format off
// | who writes                          | who reads                   | ordered by                                  |
// |-------------------------------------|-----------------------------|---------------------------------------------|
// | keep_counts: what the headers say   | KeptCounts of all scopes    | agree: store_release, load_acquire (gpu)    |
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
#include "ucclep/device/user/network.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// What the header of a source says of the rows that come: in all, and for a local expert. Of one that is absent: none.
struct Announced {
  HeaderFacts facts{};
  uint32_t count = 0;

  // Lane verb, which waits.
  UCCLEP_FN bool read(const Op& op, uint32_t source, uint32_t expert) {
    const Packet* const header = network::header_from(op, source);
    uint64_t said[3];
    if (!wait_packets(op, source,
                      {header + HeaderLayout::rows, header + HeaderLayout::tokens, counts_packet(header, expert)},
                      said)) {
      return false;
    }
    facts = {static_cast<uint32_t>(said[0]), static_cast<uint32_t>(said[1]), static_cast<Form>(said[0] >> 32)};
    count = count_of(said[2], expert);
    const uint32_t most = op.group.shape.ll_tokens;
    if (facts.rows <= most && facts.tokens <= most && count <= most) return true;
    report_count(op, source, facts.rows > most ? facts.rows : facts.tokens > most ? facts.tokens : count, most);
    return false;
  }
};

// Lane verb: does a token of `source` come, and as which of its rows.
UCCLEP_FN bool find_place(const Op& op, uint32_t source, uint32_t token, bool& comes, uint32_t& place) {
  place = 0;
  for (uint32_t i = 0; i <= token / 64; ++i) {
    uint64_t bits = 0;
    if (!wait_packet(op, Phase::header, source, present_packet(op, source, i), bits)) return false;
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
    if (!wait_packet(op, Phase::header, source, present_packet(op, source, i), bits)) return false;
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
      : op(op), source(source), lines(facts.form == Form::line), remote(network::is_remote(op, source)) {
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
    return wait_word(op, Phase::rows, source, meta + layout().epoch);
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
};

// Do its rows lie by token? From another domain they never do.
UCCLEP_FN bool lies_by_token(const Op& op, const Segment& at) {
  return by_token(at.facts.form) && !network::is_remote(op, at.source);
}

UCCLEP_FN uint32_t zones_of(const OpenDispatch& open) {
  return open.by_expert() ? open.handle.group.shape.local_experts() : open.handle.group.shape.ranks;
}
UCCLEP_FN uint32_t rows_of_zone(const OpenDispatch& open) {
  return open.by_expert() ? open.handle.group.shape.ranks * open.handle.view.tokens : open.handle.view.tokens;
}

// What the headers have said, as the first call has kept it. Calls that came with it may still write the same.
struct KeptCounts {
  const HandleMemory memory;

  UCCLEP_FN uint32_t base(uint32_t source, uint32_t expert) const { return word(memory.expert_base(source) + expert); }
  UCCLEP_FN uint32_t count(uint32_t source, uint32_t expert) const { return word(memory.counts_from(source) + expert); }
  UCCLEP_FN uint32_t rows(uint32_t source) const { return word(memory.rows_from() + source); }
  UCCLEP_FN HeaderFacts facts(uint32_t source) const {
    return {rows(source), word(memory.tokens_from() + source), static_cast<Form>(word(memory.forms_from() + source))};
  }
  // Of a slab, or of the rows of a source.
  UCCLEP_FN uint32_t rows_of_zone(const OpenDispatch& open, uint32_t zone) const {
    const uint32_t last = memory.shape.ranks - 1;
    return open.by_expert() ? base(last, zone) + count(last, zone) : rows(zone);
  }
  // Of all zones.
  UCCLEP_FN uint32_t all() const { return word(&memory.state()->rows); }

 private:
  static UCCLEP_FN uint32_t word(const uint32_t* at) { return load_relaxed<Scope::gpu>(at); }
};

// Verb of a whole scope, all groups of a warp together: keeps what the headers say, for the calls that follow and for
// combine.
template <class Coop>
UCCLEP_FN bool keep_counts(const OpenDispatch& open, const Op& op) {
  const HandleMemory memory = open.memory();
  const KeptCounts kept{memory};
  const uint32_t local = op.group.shape.local_experts(), ranks = op.ranks();
  const auto keep = [](uint32_t* at, uint32_t value) { store_relaxed<Scope::gpu>(at, value); };
  bool ok = true;
  for (uint32_t expert = Coop::rank(); expert < local && ok; expert += Coop::size()) {
    uint32_t base = 0;
    for (uint32_t source = 0; source < ranks && ok; ++source) {
      Announced said;
      ok = said.read(op, source, expert);
      keep(memory.expert_base(source) + expert, base);
      keep(memory.counts_from(source) + expert, said.count);
      base += said.count;
    }
  }
  for (uint32_t source = Coop::rank(); source < ranks && ok; source += Coop::size()) {
    Announced said;
    ok = said.read(op, source, 0);
    keep(memory.rows_from() + source, said.facts.rows);
    keep(memory.tokens_from() + source, said.facts.tokens);
    keep(memory.forms_from() + source, static_cast<uint32_t>(said.facts.form));
  }
  if (any_together<Coop>(!ok)) return false;
  Coop::sync();
  for (uint32_t rank = Coop::rank(); rank <= ranks; rank += Coop::size()) {
    uint32_t before = 0;
    for (uint32_t source = 0; source < rank; ++source) before += kept.rows(source);
    keep(memory.recv_base() + rank, before);
  }
  uint32_t mine = 0;
  for (uint32_t zone = Near<Coop>::rank(); zone < zones_of(open); zone += Near<Coop>::size()) {
    mine += kept.rows_of_zone(open, zone);
  }
  keep(&memory.state()->rows, Near<Coop>::sum(mine));
  return true;
}

// Lane verb: body(segment) for all that rows [first, last) of a zone consist of. False: body has said so.
template <class Body>
UCCLEP_FN bool each_segment(const OpenDispatch& open, uint32_t zone, uint32_t first, uint32_t last, Body&& body) {
  const KeptCounts kept{open.memory()};
  const bool by_expert = open.by_expert();
  const uint32_t begin = by_expert ? 0 : zone, end = by_expert ? kept.memory.shape.ranks : zone + 1;
  for (uint32_t source = begin; source < end; ++source) {
    Segment segment{zone,
                    source,
                    by_expert ? kept.base(source, zone) : 0,
                    by_expert ? kept.count(source, zone) : kept.rows(source),
                    0,
                    0,
                    {}};
    segment.begin = first > segment.base ? first : segment.base;
    segment.end = last < segment.base + segment.count ? last : segment.base + segment.count;
    if (segment.begin >= segment.end) continue;
    segment.facts = kept.facts(source);
    if (!body(segment)) return false;
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
UCCLEP_FN bool find_rows(const OpenDispatch& open, const Op& op, const Segment& at) {
  const LandedRows rows = LandedRows::of(open, op, at);
  if constexpr (whole_warps<Coop>) {
    if (!note_free_rows<Coop>(open, op, at, rows)) return false;
    const Wait wait = begin_wait_for_blocks(op, op.group.abort_word);
    for (uint32_t i = Coop::rank(); i < rows.all; i += Coop::size()) {
      if (wait_until(wait, [&] { return load_acquire<Scope::gpu>(rows.noted + i) == op.seq; })) continue;
      report_blocks(op, wait);
      return false;
    }
  } else {
    for (uint32_t i = Coop::rank(); i < rows.all; i += Coop::size()) {
      const uint32_t index = (i + block_id()) % rows.all;
      if (load_acquire<Scope::gpu>(rows.noted + index) == op.seq) continue;
      if (!note_row_at(open, op, at, rows, index, 0, 1)) return false;
    }
  }
  return true;
}

// Verb of members of a scope, after a sync of it: find_rows has noted them. (Warps have said so already.)
template <class Coop>
UCCLEP_FN void note_found(const OpenDispatch& open, const Op& op, const Segment& at) {
  const LandedRows rows = LandedRows::of(open, op, at);
  for (uint32_t i = Coop::rank(); !whole_warps<Coop> && i < rows.all; i += Coop::size()) {
    store_release<Scope::gpu>(rows.noted + i, op.seq);
  }
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
