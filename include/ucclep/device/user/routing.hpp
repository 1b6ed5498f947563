// SPDX-License-Identifier: Apache-2.0
// What a user's kernel that sends a dispatch of LL makes of its routing: the experts of a token, as the scope that
// sends it sees them, and the index by which receivers find rows.
//
// Where the routing is known when the dispatch begins, all warps of the grid count it at once, and what follows from
// counting leaves ahead of the rows. Each warp reads the ids again for what it counts: it needs no table, no shared
// memory and no other warp.
//
// | who releases                      | who acquires               | what is ordered                        |
// |-----------------------------------|----------------------------|----------------------------------------|
// | dispatch_end: the block's ticket  | all_sent (user/receive.hpp)| the routing that warps have kept in    |
// |                                   |                            |   the handle, before combine reads it  |
//
// Floor: one read of the ids, and one flight of a packet.
#pragma once
#include <type_traits>

#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/routing.hpp"
#include "ucclep/device/ll/row_lines.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace ucclep {

// The routing of a rank's tokens. topk_idx: [T][K], -1: none. topk_weights: [T][K], or NULL where rows have none. Both
// in memory that all blocks can read, until the dispatch has ended.
template <class Index>
struct TopkRouting {
  const Index* topk_idx;
  const float* topk_weights;
  uint32_t tokens;
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// The experts of a token, where the caller has them, as a thread or some lanes look at them: each at all.
template <class Index>
struct TopkIds {
  const Index* ids;
  const GroupShape& shape;
  ExpertIds meaning;
  uint32_t token;
  bool sends;  // false: it is not looked at

  UCCLEP_FN TopkIds(const Index* ids, const ucclEpDeviceGroup& group, uint32_t token, bool sends)
      : ids(ids), shape(group.shape), meaning(ExpertIds::of_caller(group)), token(token), sends(sends) {}

  // Expert k, or -1: out of range, or there twice.
  UCCLEP_FN int32_t expert(uint32_t k) const {
    const auto id = static_cast<int64_t>(ids[k]);
    for (uint32_t j = 0; j < k; ++j) {
      if (static_cast<int64_t>(ids[j]) == id) return -1;
    }
    int64_t bad;
    const uint32_t expert = meaning.expert(token, id, &bad);
    return expert == no_expert ? -1 : static_cast<int32_t>(expert);
  }
  UCCLEP_FN uint32_t rank(uint32_t k) const { return shape.rank_of(static_cast<uint32_t>(expert(k))); }
  // A bit for each k that is the first with an expert of its rank.
  UCCLEP_FN uint32_t ranks() const {
    uint32_t first = 0;
    for (uint32_t k = 0; k < shape.top_k; ++k) {
      bool seen = expert(k) < 0;
      for (uint32_t j = 0; j < k && !seen; ++j) seen = expert(j) >= 0 && rank(j) == rank(k);
      if (!seen) first |= 1u << k;
    }
    return first;
  }
  // Verb of the scope: keep(k, expert) for each k.
  template <class Coop, class Keep>
  UCCLEP_FN void each(Keep&& keep) const {
    for (uint32_t k = Coop::rank(); k < shape.top_k; k += Coop::size()) keep(k, expert(k));
  }
  // Verb of the scope: an id that counts as -1 but is another leaves a record.
  template <class Coop>
  UCCLEP_FN void report(const Op& op) const {
    int64_t bad = no_bad_id;
    for (uint32_t k = 0; k < shape.top_k && bad == no_bad_id; ++k) {
      if (expert(k) < 0) bad = static_cast<int64_t>(ids[k]);
    }
    if (Coop::rank() == 0) report_bad_id(op, bad);
  }
};

// The same of whole warps, each of which has them all, lane k the k-th. All lanes ask together.
struct TopkOfWarp {
  const GroupShape& shape;
  int64_t bad = no_bad_id;
  Selection mine;

  template <class Index>
  UCCLEP_FN TopkOfWarp(const Index* ids, const ucclEpDeviceGroup& group, uint32_t token, bool sends)
      : shape(group.shape),
        mine(select(ExpertIds::of_caller(group), token,
                    sends && lane_id() < shape.top_k ? static_cast<int64_t>(ids[lane_id()]) : no_bad_id, &bad)) {}

  UCCLEP_FN uint32_t rank(uint32_t k) const { return broadcast(mine.rank, k); }
  UCCLEP_FN uint32_t ranks() const { return static_cast<uint32_t>(ballot(mine.sends())); }
  template <class Coop, class Keep>
  UCCLEP_FN void each(Keep&& keep) const {
    if (Near<Coop>::index() == 0 && lane_id() < shape.top_k) keep(lane_id(), mine.expert);
  }
  template <class Coop>
  UCCLEP_FN void report(const Op& op) const {
    if (Near<Coop>::index() == 0) report_bad_id(op, bad);
  }
};
static_assert(no_bad_id == -1, "it stands for no expert");

template <class Coop, class Index>
using Topk = std::conditional_t<whole_warps<Coop>, TopkOfWarp, TopkIds<Index>>;

// The index of the rows of a dispatch within a domain: for each expert of the receiver, by position, which token and
// which row of the source it is. So who receives some rows of an expert reads an entry for each, not the metas of all
// rows. Headers of sources that have sent it say so (HeaderLayout::has_index).
UCCLEP_FN Packet* index_packet(const Op& op, uint32_t receiver, uint32_t source, uint32_t local_expert,
                               uint32_t position) {
  const WindowLayout& window = op.group.layout;
  const uint64_t at = window.ll_index_of(op.slot, source) +
                      sizeof(Packet) * (uint64_t{local_expert} * op.group.shape.ll_tokens + position);
  return reinterpret_cast<Packet*>(op.window(receiver) + at);
}

// Warp verb: the entries of a token's selections, of which lane k has the k-th.
UCCLEP_FN void send_index(const Op& op, uint32_t token, const Selection& selection) {
  uint32_t place = no_place;  // of the row at the rank of the lane's expert
  UCCLEP_KEEP_LOOP
  for (uint64_t left = ballot(selection.sends()); left != 0; left &= left - 1) {
    const uint32_t lane = first_lane(left);
    const uint32_t rank = broadcast(selection.rank, lane), at = broadcast(selection.place, lane);
    if (selection.expert >= 0 && selection.rank == rank) place = at;
  }
  if (place == no_place || !op.has_window(selection.rank)) return;
  const uint32_t expert = static_cast<uint32_t>(selection.expert) - selection.rank * op.group.shape.local_experts();
  store_packet(index_packet(op, selection.rank, op.me(), expert, selection.position), token | uint64_t{place} << 32,
               op.seq);
}

// Some of a token's experts, no_expert where there is none or its rank is masked.
struct SomeExperts {
  static constexpr uint32_t most = 8;
  uint32_t id[most];

  UCCLEP_FN bool has(uint32_t expert) const {
    bool found = false;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < most; ++i) found = found || id[i] == expert;
    return found;
  }
  UCCLEP_FN bool has_rank(const GroupShape& shape, uint32_t rank) const {
    const uint32_t local = shape.local_experts(), first = rank * local;
    bool found = false;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < most; ++i) found = found || id[i] - first < local;
    return found;
  }
  // A bit for each of [first, first + count) that is there.
  UCCLEP_FN uint32_t among(uint32_t first, uint32_t count) const {
    uint32_t bits = 0;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < most; ++i) {
      if (id[i] - first < count) bits |= 1u << (id[i] - first);
    }
    return bits;
  }
};
static_assert(no_expert >= max_experts, "it is among no rank's");

// Ids of some tokens, a token a lane.
template <class Index>
struct TopkOfLanes {
  const Op& op;
  const TopkRouting<Index>& routing;

  // Verb of a lane or a warp: body(experts) for some of the lane's token after the other.
  template <class Body>
  UCCLEP_FN void each(uint32_t token, Body&& body) const {
    const GroupShape& shape = op.group.shape;
    const Index* const ids = routing.topk_idx + uint64_t{token} * shape.top_k;
    const ExpertIds meaning = ExpertIds::of_caller(op.group);
    int64_t bad;  // announce_token reports it
    UCCLEP_KEEP_LOOP
    for (uint32_t first = 0; first < shape.top_k; first += SomeExperts::most) {
      SomeExperts experts;
      UCCLEP_UNROLL
      for (uint32_t i = 0; i < SomeExperts::most; ++i) {
        const bool there = token < routing.tokens && first + i < shape.top_k;
        const auto id = there ? static_cast<int64_t>(ids[first + i]) : -1;
        experts.id[i] = meaning.expert(token, id, &bad);
        if (op.masked() && experts.id[i] != no_expert && is_masked(op, shape.rank_of(experts.id[i]))) {
          experts.id[i] = no_expert;
        }
      }
      body(experts);
    }
  }
};

// Warp verb: what lies before a token's selections, as TokenSets::add_before.
template <class Index>
UCCLEP_FN void add_before(const TopkOfLanes<Index>& topk, uint32_t token, Selection& selection) {
  const GroupShape& shape = topk.op.group.shape;
  const auto wanted = static_cast<uint32_t>(selection.expert);
  if (selection.expert >= 0 && is_masked(topk.op, selection.rank)) selection.place = no_place;
  const uint64_t valid = ballot(selection.expert >= 0), sends = ballot(selection.sends());
  UCCLEP_KEEP_LOOP
  for (uint32_t first = 0; first < token; first += wave_size) {
    uint32_t same_expert = 0, same_rank = 0;  // of the lane's token, a bit for each of the selections
    topk.each(first + lane_id() < token ? first + lane_id() : topk.routing.tokens, [&](const auto& experts) {
      UCCLEP_KEEP_LOOP
      for (uint64_t left = valid; left != 0; left &= left - 1) {
        const uint32_t k = first_lane(left);
        if (experts.has(broadcast(wanted, k))) same_expert |= 1u << k;
        if ((sends >> k & 1) != 0 && experts.has_rank(shape, broadcast(selection.rank, k))) same_rank |= 1u << k;
      }
    });
    UCCLEP_KEEP_LOOP
    for (uint64_t left = valid; left != 0; left &= left - 1) {
      const uint32_t k = first_lane(left);
      const uint32_t positions = count_lanes(ballot((same_expert >> k & 1) != 0));
      const uint32_t places = (sends >> k & 1) != 0 ? count_lanes(ballot((same_rank >> k & 1) != 0)) : 0;
      if (lane_id() == k) selection.position += positions, selection.place += places;
    }
  }
}

constexpr uint32_t experts_counted = 8;  // that a warp counts at a time: even

// Warp verb: rows for each of the experts [first, first + experts_counted), the lane's; no more than `end`.
template <class Index>
UCCLEP_FN uint32_t count_rows(const TopkOfLanes<Index>& topk, uint32_t first, uint32_t end) {
  const uint32_t count = end - first < experts_counted ? end - first : experts_counted;
  uint32_t rows = 0;
  UCCLEP_KEEP_LOOP
  for (uint32_t token = 0; token < topk.routing.tokens; token += wave_size) {
    uint32_t wanted = 0;  // of the lane's token, a bit for each of the experts
    topk.each(token + lane_id(), [&](const auto& experts) { wanted |= experts.among(first, count); });
    UCCLEP_KEEP_LOOP
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t found = count_lanes(ballot((wanted >> i & 1) != 0));
      if (lane_id() == i) rows += found;
    }
  }
  return rows;
}

// Verbs of a warp that share out the header of a peer: the counts of some experts, and all the rest.
template <class Index>
UCCLEP_FN void announce_counts(const Op& op, const HandleMemory& memory, const TopkOfLanes<Index>& topk, uint32_t peer,
                               uint32_t part) {
  const uint32_t local = memory.shape.local_experts(), first = part * experts_counted;
  const uint32_t rows = count_rows(topk, peer * local + first, (peer + 1) * local);
  const uint32_t next = shfl(rows, (lane_id() + 1) % wave_size);
  const uint32_t expert = first + lane_id();
  if (lane_id() >= experts_counted || expert >= local) return;
  memory.counts_to()[peer * local + expert] = rows;
  if (expert % 2 != 0) return;
  const uint64_t odd = expert + 1 < local ? next : 0;
  store_packet(header_packets(op, peer, op.me()) + HeaderLayout::counts + expert / 2, rows | odd << 32, op.seq);
}
template <class Index>
UCCLEP_FN void announce_rows(const Op& op, const HandleMemory& memory, const TopkOfLanes<Index>& topk,
                             const Settings& settings, Form form, uint32_t peer) {
  const GroupShape& shape = memory.shape;
  const uint32_t tokens = topk.routing.tokens;
  Packet* const header = header_packets(op, peer, op.me());
  uint32_t rows = 0;
  UCCLEP_KEEP_LOOP
  for (uint32_t first = 0; first < tokens; first += 64) {
    uint64_t present = 0;
    UCCLEP_KEEP_LOOP
    for (uint32_t begin = 0; begin < 64; begin += wave_size) {
      bool comes = false;
      topk.each(first + begin + lane_id(),
                [&](const auto& experts) { comes = comes || experts.has_rank(shape, peer); });
      present |= ballot(comes) << begin;
    }
    rows += count_lanes(present);
    if (lane_id() == 0)
      store_packet(header + HeaderLayout::present(shape.local_experts()) + first / 64, present, op.seq);
  }
  if (lane_id() == 0) memory.rows_to()[peer] = rows;
  if (lane_id() < HeaderLayout::counts) {
    const uint64_t said = tokens | HeaderLayout::has_index;
    store_packet(header + lane_id(), fixed_packet(lane_id(), settings, rows, form, said), op.seq);
  }
}

// Warp verb: the meta of a token to all ranks that get its row. weight: lane k's.
UCCLEP_FN void send_meta(const Op& op, const OpenDispatch& open, uint32_t token, const Selection& selection,
                         float weight) {
  const GroupShape& shape = op.group.shape;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const uint32_t bytes = layout.body_bytes();
  if (!op.may.bulk || open.form == Form::line) {
    LineBatch batch;
    batch.fill_together(bytes, [&](uint32_t at) { return meta_word_of_lanes(shape, token, selection, weight, at); });
    lines_of_token(op, RowLines::of(shape, open.wire), token, selection).each([&](char* lines) {
      batch.send(lines, bytes, op.seq);
    });
    return;
  }
  const bool sends = selection.sends() && op.has_window(selection.rank);
  char* meta = op.window(sends ? selection.rank : op.me()) + op.group.layout.ll_meta_of(op.slot, op.me()) +
               uint64_t{token} * layout.bytes;
  UCCLEP_KEEP_LOOP
  for (uint32_t begin = 0; begin < bytes; begin += 8 * wave_size) {
    const uint32_t at = begin + 8 * lane_id();
    const uint64_t word = meta_word_of_lanes(shape, token, selection, weight, at);
    Addresses{sends, meta}.each([&](char* to) {
      if (at < bytes) *reinterpret_cast<uint64_t*>(to + at) = word;
    });
  }
  sync_warp();
  if (sends) publish(reinterpret_cast<uint64_t*>(meta + layout.epoch), op.seq);
}

// A dispatch whose routing was known when it began.
template <class Index>
struct RoutedDispatch : OpenDispatch {
  TopkRouting<Index> routing;
};

// Warp verb: what of a token follows from the routing: its metas, its entries in the index, and what the handle keeps.
template <class Index>
UCCLEP_FN void announce_token(const Op& op, const RoutedDispatch<Index>& open, const TopkOfLanes<Index>& topk,
                              uint32_t token) {
  const uint32_t k = lane_id(), top_k = open.shape.top_k;
  const uint64_t first = uint64_t{token} * top_k;
  const bool weighted = k < top_k && topk.routing.topk_weights != nullptr;
  const float weight = weighted ? topk.routing.topk_weights[first + k] : 0.0f;
  Selection selection = TopkOfWarp(topk.routing.topk_idx + first, op.group, token, true).mine;
  add_before(topk, token, selection);
  send_index(op, token, selection);
  send_meta(op, open, token, selection, weight);
  keep_selection(open.memory(), RoutingInput{}, token, selection);
}

// Verb of every block: all warps share out what follows from the routing.
template <class Index>
UCCLEP_FN void announce(const RoutedDispatch<Index>& open, const Op& op) {
  const GroupShape& shape = op.group.shape;
  const HandleMemory memory = open.memory();
  const TopkOfLanes<Index> topk{op, open.routing};
  const uint32_t tokens = open.routing.tokens,
                 parts = static_cast<uint32_t>(ceil_div(shape.local_experts(), experts_counted));
  const uint32_t of_peer = parts + 1, items = shape.ranks * of_peer + tokens;
  for (uint32_t item = grid_warp(); item < items; item += grid_warps()) {
    if (item >= shape.ranks * of_peer) {
      announce_token(op, open, topk, item - shape.ranks * of_peer);
      continue;
    }
    const uint32_t peer = op.rotated(item / of_peer), part = item % of_peer;
    if (is_masked(op, peer)) continue;
    if (part == parts) announce_rows(op, memory, topk, open.settings, open.form, peer);
    if (part < parts) announce_counts(op, memory, topk, peer, part);
  }
  sync_warp();  // all lanes have stored theirs before any goes on to wait for a peer, which waits for this
  if (block_id() == 0 && thread_id() == 0) note_routing(memory, tokens, open.shape.top_k);
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
