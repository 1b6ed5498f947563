// SPDX-License-Identifier: Apache-2.0
// LL dispatch of rows that come in LINE form only, from few ranks. A block has what all headers say in its shared
// memory, as it stands there, after one barrier: a warp asks about its row itself, where the tables of a block
// (ll/inbox.hpp) would first have to be put together. Which row a warp has does not depend on what comes: it goes
// through the tokens of all sources, and skips those that have no row here.
//
// Floor of what follows the headers: one read of the row's meta and lines.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

struct HeaderTable {
  char* const base;  // what the block shares
  const BlockTableLayout& at;

  UCCLEP_FN HeaderFacts& facts(uint32_t source) const {
    return reinterpret_cast<HeaderFacts*>(base + at.facts)[source];
  }
  // Which of a source's tokens have a row here, a bit for each.
  UCCLEP_FN uint64_t* present_of(const GroupShape& shape, uint32_t source) const {
    return reinterpret_cast<uint64_t*>(base + at.present) + source * HeaderLayout::present_packets(shape.ll_tokens);
  }
  // [R][L]: rows of a source for each expert, where they are wanted.
  UCCLEP_FN uint32_t* counts() const { return reinterpret_cast<uint32_t*>(base + at.bases); }
  UCCLEP_FN uint32_t* counts_of(const GroupShape& shape, uint32_t source) const {
    return counts() + source * shape.local_experts();
  }

  // Why the headers are read: to receive rows, or to count them, also those that the repair has written. counts: those
  // of experts are wanted.
  struct Reading {
    bool counting, counts;
  };

  // Block verb: waits for everybody's header, whole. wait_ns: of the block that counts.
  UCCLEP_FN HeaderResult receive(const Op& op, const Settings& settings, const Reading& reading,
                                 const View& wait_ns) const {
    bool ok = true;
    for (uint32_t i = warp_id(); i < op.ranks() && ok; i += block::warps()) {
      const uint32_t source = op.rotated(i);
      const bool timed = reading.counting && wait_ns.data;
      const uint64_t start = timed ? clock_ns() : 0;
      const Op same = op.with(reload(op.group));
      ok = receive_from(same, settings, source, reading);
      if (timed && lane_id() == 0) {
        *reinterpret_cast<int64_t*>(wait_ns.at(0, 0, source)) += static_cast<int64_t>(clock_ns() - start);
      }
    }
    if (!every_thread(ok)) return HeaderResult::lost;
    if (thread_id() == 0) mark(op, Mark::headers_in);
    bool differs = false;
    for (uint32_t s = 0; s < op.ranks(); ++s) differs = differs || facts(s).form == refused;
    return differs ? HeaderResult::differs : HeaderResult::good;
  }

  // Verb of the block that has counted, before it receives.
  UCCLEP_FN void leave_out_blank(const Op& op) const {
    sync_block();
    const uint32_t source = thread_id();
    if (source < op.ranks() && is_blank(op.group, op.seq, source)) facts(source) = blanked(facts(source));
    sync_block();
  }

  // Lane verb, after receive: the most tokens that a source has.
  UCCLEP_FN uint32_t max_tokens(uint32_t ranks) const {
    uint32_t most = 0;
    for (uint32_t s = 0; s < ranks; ++s) most = facts(s).tokens > most ? facts(s).tokens : most;
    return most;
  }

 private:
  static UCCLEP_FN HeaderFacts blanked(const HeaderFacts& said) { return {0, 0, said.form}; }
  static constexpr Form refused = static_cast<Form>(settings_differ);

  // Warp verb. The first packets are waited for before the others are looked at: many who look at many hold them up.
  UCCLEP_FN bool receive_from(const Op& op, const Settings& settings, uint32_t source, const Reading& reading) const {
    HeaderFacts said{};
    const HeaderResult result = receive_header(op, source, settings, said, nullptr);
    if (result == HeaderResult::lost) return false;
    if (result == HeaderResult::differs) said.form = refused;
    const bool blank = is_blank(op.group, op.seq, source);
    if (lane_id() == 0) facts(source) = blank && !reading.counting ? blanked(said) : said;
    return result == HeaderResult::differs || receive_rest(op, source, blank ? 0 : said.tokens, reading.counts);
  }

  // Warp verb: the counts, and behind them which tokens come, a few packets of a lane at a time.
  UCCLEP_FN bool receive_rest(const Op& op, uint32_t source, uint32_t tokens, bool counts) const {
    constexpr uint32_t most = 4;
    const GroupShape& shape = op.group.shape;
    const uint32_t pairs = (shape.local_experts() + 1) / 2;
    const uint32_t end = pairs + HeaderLayout::present_packets(tokens);
    const Packet* const rest = header_packets(op, op.me(), source) + HeaderLayout::counts;
    const SentBy sent(op, source);
    for (uint32_t first = counts ? 0 : pairs; first < end; first += most * wave_size) {
      uint64_t value[most] = {};
      const bool ok = wait_peer_warp(op, Phase::header, source, [&] {
        bool late = false;
        UCCLEP_UNROLL
        for (uint32_t j = 0; j < most; ++j) {
          const uint32_t i = first + lane_id() + j * wave_size;
          if (i >= end || sent.absent) continue;  // of one that is absent they are 0
          const Packet seen = load_packet(rest + i);
          value[j] = seen.value;
          late = late || seen.epoch != op.seq;
        }
        return ballot(late) == 0;
      });
      if (!ok) return false;
      bool fits = true;
      UCCLEP_UNROLL
      for (uint32_t j = 0; j < most; ++j) {
        const uint32_t i = first + lane_id() + j * wave_size;
        fits = fits && (i >= pairs || larger_count(value[j]) <= shape.ll_tokens);
        keep(shape, source, i, value[j], end);
      }
      if (every_lane(fits)) continue;
      report_counts(op, source, rest, pairs);
      return false;
    }
    return true;
  }
  // Warp verb: one of the counts is more than a rank can have. Read again, so that nobody keeps them until here.
  static UCCLEP_FN void report_counts(const Op& op, uint32_t source, const Packet* counts, uint32_t pairs) {
    const uint32_t most = reload(op.group).shape.ll_tokens;
    for (uint32_t i = lane_id(); i < pairs; i += wave_size) {
      const uint32_t larger = larger_count(SentBy(op, source).value(counts + i));
      if (larger > most) report_count(op, source, larger, most);
    }
  }
  // Lane verb: one of those packets.
  UCCLEP_FN void keep(const GroupShape& shape, uint32_t source, uint32_t i, uint64_t value, uint32_t end) const {
    const uint32_t local = shape.local_experts(), pairs = (local + 1) / 2;
    if (i >= pairs) {
      if (i < end) present_of(shape, source)[i - pairs] = value;
      return;
    }
    counts_of(shape, source)[2 * i] = static_cast<uint32_t>(value);
    if (2 * i + 1 < local) counts_of(shape, source)[2 * i + 1] = static_cast<uint32_t>(value >> 32);
  }
};

// Verb of one warp, after HeaderTable::receive with all counts: what place_rows does, of few ranks and without a
// barrier. good: all ranks have the same settings.
UCCLEP_FN void place_small(const Op& op, const HandleMemory& memory, const HeaderTable& table, Zones zones,
                           const CounterViews& out, bool good) {
  const GroupShape& shape = memory.shape;
  const WarpUniform ranks = shape.ranks, local = shape.local_experts();
  uint32_t copies = 0;
  for (WarpUniform first = 0; first < local && good; first += wave_size) {
    const uint32_t l = first + lane_id();
    uint32_t count = 0;
    for (uint32_t s = 0; s < ranks && l < local; ++s) {
      const uint32_t from = table.counts_of(shape, s)[l];
      memory.counts_from(s)[l] = from;
      count += from;
    }
    const uint32_t upto = copies + scan_add(count);
    const ExpertRows<uint32_t> of_expert{l, count, upto - count, count};
    if (l < local) place_expert<false>(op, memory, table.counts(), zones, out, of_expert);
    copies = shfl(upto, wave_size - 1);
  }
  if (lane_id() == 0 && good && out.num_expert_offsets > local) store_index(out.expert_offsets, 0, local, copies);
  uint32_t rows = 0, below = 0;
  for (uint32_t s = 0; s < ranks; ++s) {
    below = s == lane_id() ? rows : below;
    rows += table.facts(s).rows;
  }
  if (lane_id() < ranks) {
    const uint32_t s = lane_id();
    HeaderWords::of(memory).put(s, table.facts(s));
    memory.recv_base()[s] = below;
    if (good) count_source(shape, zones, out, s, table.facts(s).rows, table.counts_of(shape, s));
  }
  if (lane_id() == 0) {
    memory.recv_base()[ranks] = rows;
    note_total(memory, out, good, zones == Zones::sources ? rows : copies);
  }
  sync_warp();
  if (lane_id() == 0) publish_total(out, good ? int64_t{zones == Zones::sources ? rows : copies} : -1);
}

// A way to find a row, by what its source's header says.
struct ByHeaders {
  static constexpr bool in_waves = false, by_arrival = false;
  const HeaderTable table;
  uint32_t token, place = 0;

  // Warp verb: does the row come here? After this its place is known.
  UCCLEP_FN bool find(const Op& op, uint32_t source) {
    if (token >= table.facts(source).tokens) return false;
    const uint64_t* const words = table.present_of(op.group.shape, source);
    const uint32_t whole = token / 64;
    const uint64_t last = words[whole];
    if ((last >> token % 64 & 1) == 0) return false;
    place = count_lanes(last & ((uint64_t{1} << token % 64) - 1));
    if (whole != 0) place += reduce_add(lane_id() < whole ? static_cast<uint32_t>(count_lanes(words[lane_id()])) : 0u);
    return true;
  }
  // Lane verb: the first row of `source` in the slab of a local expert.
  UCCLEP_FN uint32_t slab_base(const Op& op, uint32_t source, uint32_t expert) const {
    uint32_t base = 0;
    for (uint32_t s = 0; s < source; ++s) base += table.counts_of(op.group.shape, s)[expert];
    return base;
  }
};

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
