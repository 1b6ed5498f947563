// SPDX-License-Identifier: Apache-2.0
// What a user's kernel that receives a dispatch of LL knows from the headers: how many rows each source sends, for
// which expert, and in which form. Calls that come together do not all read them: one scope does, and keeps in the
// handle's memory what the others, and combine, want to know.
//
// | who writes                          | who reads                   | ordered by                                  |
// |-------------------------------------|-----------------------------|---------------------------------------------|
// | CountReader: what the headers say   | KeptCounts of all scopes    | HeadersRead (user/receive.hpp)              |
//
// Floor: one read of each packet that a scope asks about.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/network.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"
#include "ucclep/device/user/waits.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// A packet, and who sends it.
struct PacketOf {
  uint32_t source;
  const Packet* packet;
};

// Some packets on their way to a lane together, of those that at(i) names: first, first + step, .. below `count`.
struct PacketsAhead {
  static constexpr uint32_t most = 4;
  Packet seen[most];
  uint32_t first, step, count;

  template <class At>
  UCCLEP_FN PacketsAhead(uint32_t first, uint32_t step, uint32_t count, At&& at)
      : first(first), step(step), count(count) {
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < most; ++j) {
      const uint32_t i = first + j * step;
      if (i < count) seen[j] = load_packet(at(i).packet);
    }
  }
  // Waits for what is late; use(i, value) for each, in order. False: one did not come.
  template <class At, class Use>
  UCCLEP_FN bool take(const Op& op, At&& at, Use&& use) {
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < most; ++j) {
      const uint32_t i = first + j * step;
      if (i >= count) break;
      if (seen[j].epoch != op.seq || op.masked()) {
        seen[j] = await_late_packet(LateOf::of(op, Phase::header, at(i).source), at(i).packet);
        if (seen[j].epoch != op.seq) return false;
      }
      use(i, seen[j].value);
    }
    return true;
  }
  // The same, and all that follow.
  template <class At, class Use>
  UCCLEP_FN bool take_all(const Op& op, At&& at, Use&& use) {
    if (!take(op, at, use)) return false;
    UCCLEP_KEEP_LOOP
    for (uint32_t next = first + most * step; next < count; next += most * step) {
      if (!PacketsAhead(next, step, count, at).take(op, at, use)) return false;
    }
    return true;
  }
};

UCCLEP_FN uint32_t zones_of(const OpenDispatch& open) {
  return open.by_expert() ? open.handle.group.shape.local_experts() : open.handle.group.shape.ranks;
}
UCCLEP_FN uint32_t rows_of_zone(const OpenDispatch& open) {
  return open.by_expert() ? open.handle.group.shape.ranks * open.handle.view.tokens : open.handle.view.tokens;
}

constexpr uint32_t indexed_bit = 1u << 31;  // of what a handle keeps of a form

// What the headers have said, as the first call has kept it. Calls that came with it may still write the same.
struct KeptCounts {
  const HandleMemory memory;

  UCCLEP_FN uint32_t base(uint32_t source, uint32_t expert) const { return word(memory.expert_base(source) + expert); }
  UCCLEP_FN uint32_t count(uint32_t source, uint32_t expert) const { return word(memory.counts_from(source) + expert); }
  UCCLEP_FN uint32_t rows(uint32_t source) const { return word(memory.rows_from() + source); }
  UCCLEP_FN HeaderFacts facts(uint32_t source) const {
    return {rows(source), word(memory.tokens_from() + source),
            static_cast<Form>(word(memory.forms_from() + source) & ~indexed_bit)};
  }
  UCCLEP_FN bool indexed(uint32_t source) const { return (word(memory.forms_from() + source) & indexed_bit) != 0; }
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

// What KeptCounts has, from the packets of all headers. A lane has all that it looks at first under way before it waits
// for any of it. Calls that come with the first do the same.
struct CountReader {
  const OpenDispatch& open;
  const Op& op;
  const HandleMemory memory;

  UCCLEP_FN uint32_t ranks() const { return op.ranks(); }
  UCCLEP_FN uint32_t local() const { return op.group.shape.local_experts(); }
  template <class T>
  static UCCLEP_FN void keep(T* at, T value) {
    store_relaxed<Scope::gpu>(at, value);
  }
  UCCLEP_FN bool fits(uint32_t source, uint32_t count) const {
    if (count <= op.group.shape.ll_tokens) return true;
    report_count(op, source, count, op.group.shape.ll_tokens);
    return false;
  }
  UCCLEP_FN PacketOf packet(uint32_t source, uint32_t index) const {
    return {source, network::header_from(op, source) + index};
  }

  // Verb of a whole scope, all groups of a warp together.
  template <class Coop>
  UCCLEP_FN HeaderResult keep_all() const {
    const bool by_expert = open.by_expert(), sums = Near<Coop>::index() == 0;
    const uint32_t pairs = by_expert ? (local() + 1) / 2 : 1;
    const uint32_t first_pair = by_expert ? HeaderLayout::counts : HeaderLayout::rows;
    uint32_t expert = Coop::rank();
    const auto fixed_at = [&](uint32_t i) { return packet(i / HeaderLayout::counts, i % HeaderLayout::counts); };
    const auto count_at = [&](uint32_t s) { return packet(s, HeaderLayout::counts + expert / 2); };
    const auto pair_at = [&](uint32_t i) { return packet(i / pairs, first_pair + i % pairs); };
    const uint32_t source = Coop::rank() < ranks() ? Coop::rank() : ranks();
    PacketsAhead fixed(source * HeaderLayout::counts, 1,
                       (source < ranks() ? source + 1 : source) * HeaderLayout::counts, fixed_at);
    PacketsAhead counts(0, 1, expert < local() ? ranks() : 0, count_at);
    PacketsAhead all(Near<Coop>::rank(), Near<Coop>::size(), sums ? ranks() * pairs : 0, pair_at);
    bool ok = true, differs = false;
    for (uint32_t s = source;;) {
      ok = ok && keep_source(fixed, fixed_at, differs);
      s += Coop::size();
      if (s >= ranks() || !ok) break;
      fixed = PacketsAhead(s * HeaderLayout::counts, 1, (s + 1) * HeaderLayout::counts, fixed_at);
    }
    if (Coop::any(!ok)) return HeaderResult::lost;
    if (Coop::any(differs)) return HeaderResult::differs;
    for (;;) {
      ok = ok && keep_expert(counts, count_at, expert);
      expert += Coop::size();
      if (expert >= local() || !ok) break;
      counts = PacketsAhead(0, 1, ranks(), count_at);
    }
    uint32_t rows = 0;
    ok = ok && all.take_all(op, pair_at, [&](uint32_t, uint64_t said) {
      rows += static_cast<uint32_t>(said);
      if (by_expert) rows += static_cast<uint32_t>(said >> 32);
    });
    if (any_together<Coop>(!ok)) return HeaderResult::lost;
    if (sums) keep(&memory.state()->rows, Near<Coop>::sum(rows));
    return HeaderResult::good;
  }

 private:
  static_assert(HeaderLayout::counts == PacketsAhead::most, "they are all of a source's fixed packets");

  // Lane verbs: what a source has said, rows of lower sources first; and the counts of a local expert.
  template <class At>
  UCCLEP_FN bool keep_source(PacketsAhead& fixed, At&& at, bool& differs) const {
    if (fixed.first >= fixed.count) return true;
    const uint32_t source = fixed.first / HeaderLayout::counts;
    if (op.masked() && is_absent(op.group.masks, op.kind, op.seq, source)) {
      return keep_facts(source, 0, 0, Form::bulk, false);
    }
    uint64_t said[HeaderLayout::counts] = {};
    if (!fixed.take(op, at, [&](uint32_t i, uint64_t value) { said[i % HeaderLayout::counts] = value; })) return false;
    const uint64_t low = said[HeaderLayout::settings_low], high = said[HeaderLayout::settings_high];
    if (low != open.settings.low() || high != open.settings.high()) {
      report_difference(op, source, open.settings, low, high);
      differs = true;
      return true;
    }
    const uint64_t rows = said[HeaderLayout::rows], tokens = said[HeaderLayout::tokens];
    const bool index = !network::is_remote(op, source) && (tokens & HeaderLayout::has_index) != 0;
    return keep_facts(source, static_cast<uint32_t>(rows), static_cast<uint32_t>(tokens), static_cast<Form>(rows >> 32),
                      index);
  }
  UCCLEP_FN bool keep_facts(uint32_t source, uint32_t rows, uint32_t tokens, Form form, bool index) const {
    keep(memory.rows_from() + source, rows);
    keep(memory.tokens_from() + source, tokens);
    keep(memory.forms_from() + source, static_cast<uint32_t>(form) | (index ? indexed_bit : 0));
    return fits(source, rows) && fits(source, tokens);
  }
  template <class At>
  UCCLEP_FN bool keep_expert(PacketsAhead& counts, At&& at, uint32_t expert) const {
    uint32_t base = 0;
    bool sound = true;
    return counts.take_all(op, at, [&](uint32_t s, uint64_t said) {
      const uint32_t count = count_of(said, expert);
      keep(memory.expert_base(s) + expert, base);
      keep(memory.counts_from(s) + expert, count);
      base += count;
      sound = sound && fits(s, count);
    }) && sound;
  }
};

// Lane verb of who ends the dispatch, with KeptCounts: rows of lower sources, for combine.
UCCLEP_FN void keep_recv_base(const HandleMemory& memory) {
  uint32_t before = 0;
  for (uint32_t rank = 0; rank <= memory.shape.ranks; ++rank) {
    memory.recv_base()[rank] = before;
    if (rank < memory.shape.ranks) before += KeptCounts{memory}.rows(rank);
  }
}

// Verb of the scope: everybody has said what comes, and it is kept. Of whole warps that come together one reads it, and
// the others wait for that: if all read, they hold each other up. Less than a warp waits for nobody, who might be in
// the same one.
template <class Coop>
UCCLEP_FN HeaderResult what_comes(const OpenDispatch& open, const Op& op) {
  const HeadersRead read(open, op);
  if (read.template by_now<Coop>()) return HeaderResult::good;
  if (whole_warps<Coop> && !read.template is_mine<Coop>()) return read.template await<Coop>();
  HeaderResult result = HeaderResult::lost;
  if (!op.networked() || headers_came<Coop>(op)) {
    result = CountReader{open, op, open.memory()}.template keep_all<Coop>();
  }
  read.template end<Coop>(result);
  return result;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
