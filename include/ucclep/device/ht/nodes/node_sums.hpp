// SPDX-License-Identifier: Apache-2.0
// HT combine between nodes (P6): a node's ranks are added first, ascending, and rounded; what comes home is one row for
// each node. Ranks stage their partial rows as ever, and announce those for a home elsewhere to the home's relay
// (layout/nodes.hpp), which adds them up and sends the sum. Home adds up those of its own node itself, and then the
// nodes.
//
// clang-format off
// | who releases                                   | who acquires                    | what is ordered              |
// |------------------------------------------------|---------------------------------|------------------------------|
// | stage_run: publish of a run's word at the relay| relay: wait_word, then          | partial rows before the sum  |
// |                                                |   acquire_then_bulk             |                              |
// | warps that stored sums of a chunk: push_stored | the proxy, and at home wait_row | the sums                     |
// clang-format on
#pragma once
#include "ucclep/device/ht/pool.hpp"
#include "ucclep/device/ht/rounds.hpp"
#include "ucclep/device/ht/weight_rows.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/relayed_row.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/sum_ring.hpp"
#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace relay {

using network::nodes_of;
using network::own_node;

// At a home's relay, the words that announce this rank's partial rows, and the rows of the pool that those take.
UCCLEP_FN char* words_at(const Op& op, uint32_t home) {
  const NodeTable nodes = nodes_of(op);
  const uint32_t node = own_node(op), block = nodes.block_of(home, node);
  return op.window(nodes.relay(home, node)) +
         op.group.layout.relay_words_of(op.group.shape, op.slot, block, nodes.index_of(op.me()));
}
UCCLEP_FN uint64_t* run_words_at(const Op& op, uint32_t home) {
  return reinterpret_cast<uint64_t*>(words_at(op, home));
}
UCCLEP_FN uint32_t* pool_places_at(const Op& op, uint32_t home) {
  return reinterpret_cast<uint32_t*>(words_at(op, home) + op.group.layout.relay_places);
}

// Lane verb: partial row i of those that this relay adds up for a home, once it is staged. NULL: there is none, or
// nothing is left of it.
UCCLEP_FN bool staged_term(const Op& op, const HandleMemory& memory, uint32_t partial_bytes, uint32_t block,
                           uint32_t place, uint32_t i, const char*& row) {
  row = nullptr;
  const bool alone = op.group.masks != nullptr;  // a relay of its own rows
  const uint64_t at_relay = memory.relay_row(op.round, block, place);
  if (i >= (alone ? 1 : memory.relay_count(at_relay))) return true;
  const WindowLayout& window = op.group.layout;
  const NodeTable nodes = nodes_of(op);
  const RelayEntry entry = alone ? RelayEntry{op.me(), place} : memory.relay_entries(at_relay)[i];
  const uint64_t words = window.relay_words_of(op.group.shape, op.slot, block, nodes.index_of(entry.rank));
  const bool ok = wait_word(op, Phase::rows, entry.rank, op.mine() + words + 8 * uint64_t{entry.place / run_rows});
  const Staged at{entry.rank, nodes.rank_of(block, op.me()), entry.place};
  row = staged_partial(op, partial_bytes, at, words + window.relay_places);
  return ok;
}

// Warp verb: the partial rows that this relay adds up for a home, once they are staged. Of what was dropped there are
// none.
UCCLEP_FN bool staged_terms(const Op& op, const HandleMemory& memory, const HtCombineArgs& args, uint32_t block,
                            uint32_t place, Terms& terms) {
  const char* row = nullptr;
  const bool ok = staged_term(op, memory, args.partial_bytes, block, place, lane_id(), row);
  const uint64_t mask = ballot(row != nullptr);
  if (row != nullptr) {
    const uint32_t order = count_lanes(mask & ((uint64_t{1} << lane_id()) - 1));
    terms.rows[order] = row;
    if (args.weights_back) weights_of(terms)[order] = weights_behind(row, args.row_bytes);
  }
  terms.count = count_lanes(mask);
  acquire_then_bulk();
  return every_lane(ok);
}

// Sums of a round for the home that gets most of them from here.
UCCLEP_FN uint32_t max_sums(const HandleMemory& memory, uint32_t round) {
  uint32_t most = 0;
  for (uint32_t block = 0; block < memory.shape.nodes.blocks(); ++block) {
    const uint32_t rows = uniform(memory.relayed(round)[block]);
    most = rows > most ? rows : most;
  }
  return most;
}

// Where a sum for a home waits for a NIC to take it there.
UCCLEP_FN char* sum_out(const Op& op, uint32_t partial_bytes, uint32_t block, uint32_t place) {
  return network::mine(op) + op.group.layout.sums_out_for(op.group.shape, op.slot, block) +
         uint64_t{place} * partial_bytes;
}
// Where the sum of a node, to this rank, has landed.
UCCLEP_FN const char* sum_in(const Op& op, uint32_t partial_bytes, uint32_t node, uint32_t place) {
  return network::mine(op) + op.group.layout.sums_in_of(op.group.shape, op.slot, node) +
         uint64_t{place} * partial_bytes;
}

// Lane verb: until it has.
UCCLEP_FN bool wait_sum(const Op& op, uint32_t node, uint32_t place) {
  return network::wait_row(op, nodes_of(op).relay(op.me(), node), place, between_nodes_flag);
}

// Verb of the summing warps of the grid: blocks in turn, low places first. masks: the group may have some.
template <class Element, bool masks>
UCCLEP_FN bool send_sums(const HtCombineArgs& args, const Op& op, const Stage& stage, SumRing& ring,
                         const Worker& worker) {
  const WarpUniform blocks = op.group.shape.nodes.blocks(), items = max_sums(memory_of(args), op.round) * blocks;
  for (WarpUniform item = worker.index; item < items; item += worker.workers) {
    const HtCombineArgs& now = reload(args);
    const Op here = op.with(now.group);
    const uint32_t block = item % blocks, place = item / blocks;
    if (place >= uniform(memory_of(now).relayed(op.round)[block])) continue;
    if constexpr (masks) {
      if (is_masked(now.group, nodes_of(here).rank_of(block, here.me()))) continue;
    }
    Terms terms{reinterpret_cast<const char**>(stage.scratch()), 0, 0};
    if (!staged_terms(here, memory_of(now), now, block, place, terms)) return false;
    char* const to = sum_out(here, now.partial_bytes, block, place);
    if (now.weights_back) sum_weights(terms, here.group.shape.top_k, weights_behind(to, now.row_bytes));
    ring.sum<Element>(terms, uniform(now.row_bytes),
                      [&](uint32_t offset, const Vector<Element>& sum) { store16(to + offset, sum.pack()); });
    const HtCombineArgs& then = reload(args);
    const Op same = op.with(then.group);
    const uint32_t of = item % blocks, home = nodes_of(same).rank_of(of, same.me()), at = item / blocks;
    const uint32_t all = memory_of(then).relayed(same.round)[of];
    if (!network::push_stored(same, lane_id() == 0, home, at, all, then.partial_bytes)) return false;
  }
  return true;
}

// Warp verb: from the partial rows of a token that are of this node to the sums of all its nodes, ascending.
template <class Element>
UCCLEP_FN bool sum_own_node(const Op& op, const HtCombineArgs& args, uint32_t token, SumRing& ring, Terms& terms) {
  const auto own_sum = [&](const Op& same) {
    const uint32_t at = token - same.round * same.group.shape.ht_tokens;
    return same.mine() + same.group.layout.own_sums_of(same.slot) + uint64_t{at} * args.partial_bytes;
  };
  const bool any = terms.count != 0;
  if (any) {
    char* const to = own_sum(op);
    if (args.weights_back) sum_weights(terms, args.settings.top_k, weights_behind(to, args.row_bytes));
    ring.sum<Element>(terms, uniform(args.row_bytes),
                      [&](uint32_t offset, const Vector<Element>& sum) { store16(to + offset, sum.pack()); });
  }
  const HtCombineArgs& now = reload(args);
  const Op same = op.with(now.group);
  const HandleMemory routed = memory_of(now);
  const NodeTable nodes = nodes_of(same);
  const Selection selection = selection_of(routed, token);
  uint32_t place = lane_id() < routed.shape.top_k ? routed.node_places(token)[lane_id()] : no_place;
  const bool remote = place != no_place;
  const uint64_t here = ballot(selection.sends() && same.has_window(selection.rank));
  const bool leads = any && lane_id() == first_lane(here), has_term = remote || leads;
  const uint32_t of = remote ? nodes.node_of(selection.rank) : own_node(same);
  if (remote) place = node_place_in_round(same, routed, of, place);
  const uint64_t mask = ballot(has_term);
  uint32_t order = 0;
  for (uint64_t left = mask; left != 0; left &= left - 1) {
    if (broadcast(of, first_lane(left)) < of) ++order;
  }
  const bool ok = !remote || wait_sum(same, of, place);
  if (remote) terms.rows[order] = sum_in(same, now.partial_bytes, of, place);
  if (leads) terms.rows[order] = own_sum(same);
  if (has_term && now.weights_back) weights_of(terms)[order] = weights_behind(terms.rows[order], now.row_bytes);
  terms = {terms.rows, count_lanes(mask), 0};
  acquire_then_bulk();
  return every_lane(ok);
}

}  // namespace relay
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
