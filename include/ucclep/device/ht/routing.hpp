// SPDX-License-Identifier: Apache-2.0
// The scan of P5, as HT's Update does it. A block has neighbouring tokens, counts them by their sets, leaves the counts
// for blocks of higher index, and adds those of lower ones. The last block has no tokens where there are others: it
// adds all of them up, and waits for the peers' headers. So no block waits for one that is resident after it.
//
// clang-format off
// | who releases                         | who acquires                         | what is ordered                      |
// |--------------------------------------|--------------------------------------|--------------------------------------|
// | leave_counts: store_release (gpu) of | wait_for_counts: load_acquire (gpu)  | a block's counts before those who    |
// |   its word                           |                                      |   sum them up                        |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/token_sets.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

using HtSets = TokenSets<HtUpdateArgs>;

// A block's shared memory while it routes. A column each for a rank, for an expert, and then for a node.
struct ScanTables {
  uint32_t* counts;  // of each column the block's rows; after the barrier those of lower blocks, and of its own earlier
                     // tiles
  uint32_t* sets;    // HtSets; what goes to a node is in those of its ranks

  static UCCLEP_HD constexpr uint64_t columns(const GroupShape& s) {
    return uint64_t{s.ranks} + s.experts + s.nodes.nodes;
  }
  static UCCLEP_HD constexpr uint64_t counts_bytes(const GroupShape& s) { return round_up(4 * columns(s), 16); }
  // set_tokens: a multiple of 32.
  static UCCLEP_HD constexpr uint64_t bytes(const GroupShape& s, uint32_t set_tokens) {
    return counts_bytes(s) + 4 * (uint64_t{s.ranks} + s.experts) * (set_tokens / 32);
  }

  static UCCLEP_FN ScanTables of(const GroupShape& shape) {
    auto* base = static_cast<char*>(shared_memory());
    return {reinterpret_cast<uint32_t*>(base), reinterpret_cast<uint32_t*>(base + counts_bytes(shape))};
  }
};

// Which of the grid's blocks have tokens, and which tokens. At most one block per chunk_tokens, since each leaves its
// counts in the handle.
struct ScanShares {
  uint32_t of_block, blocks;  // tokens; blocks that have any

  static UCCLEP_HD ScanShares of(uint32_t tokens, uint32_t grid) {
    const uint32_t others = grid > 1 ? grid - 1 : 1, most = others < max_routing_blocks ? others : max_routing_blocks;
    auto share = static_cast<uint32_t>(ceil_div(tokens, most));
    if (share < chunk_tokens) share = chunk_tokens;
    return {share, static_cast<uint32_t>(ceil_div(tokens, share))};
  }
  UCCLEP_FN bool mine() const { return block_id() < blocks; }
  UCCLEP_FN uint32_t begin() const { return block_id() * of_block; }
  UCCLEP_FN uint32_t end(uint32_t tokens) const { return tokens - begin() < of_block ? tokens : begin() + of_block; }
};

// The block that adds all counts up and exchanges them.
UCCLEP_FN bool sums_counts() {
  return block_id() == grid_size() - 1;
}

// Block verb: what of tokens [begin, end) goes to each rank, expert and node. Wire: ht/send.hpp.
template <class Wire>
UCCLEP_FN void count_tokens(const HtUpdateArgs& args, HtSets& sets, const WarpUniform& begin, const WarpUniform& end,
                            int64_t* bad) {
  for (WarpUniform first = begin; first < end; first += sets.capacity) {
    sets.require(first, end, bad);
    const GroupShape& shape = reload(args).group.shape;
    uint32_t* counts = ScanTables::of(shape).counts;
    for (uint32_t c = thread_id(); c < ScanTables::columns(shape); c += block_size()) {
      counts[c] = (first == begin ? 0 : counts[c]) + Wire::count_before(sets, c, sets.end);
    }
  }
}

// What a block's word is when the handle holds its counts of this launch.
UCCLEP_FN uint64_t counted_tag(const Op& op) {
  return 2 * op.seq + op.group.again;
}

// Block verb: the counts of a routing block, for the others. Every thread has made those that it leaves.
UCCLEP_FN void leave_counts(const Op& op, const HtUpdateArgs& args) {
  const HtUpdateArgs& now = reload(args);
  const uint32_t* counts = ScanTables::of(now.group.shape).counts;
  uint32_t* chunk = memory_of(now).chunk(block_id());
  for (uint32_t c = thread_id(); c < ScanTables::columns(now.group.shape); c += block_size()) chunk[c] = counts[c];
  sync_block();
  if (thread_id() == 0) store_release<Scope::gpu>(now.group.state->counted() + block_id(), counted_tag(op));
}

// Block verb: waits for the counts of the first `blocks` blocks.
UCCLEP_FN bool wait_for_counts(const Op& op, uint32_t blocks, const uint32_t* abort_word) {
  const Wait wait = begin_wait_for_blocks(op, abort_word);
  const uint64_t tag = counted_tag(op);
  bool ok = true;
  for (uint32_t i = thread_id(); i < blocks && ok; i += block_size()) {
    ok = wait_until(wait, [&] { return load_acquire<Scope::gpu>(op.group.state->counted() + i) == tag; });
    if (!ok) report_blocks(op, wait);
  }
  return every_thread(ok);
}

// Lane verb: `total` rows go to the rank, or node, in rounds that have tokens of this one. Rounds behind them send
// nothing.
UCCLEP_FN void note_all_sent(const HandleMemory& memory, uint32_t tokens, uint32_t to, uint32_t total) {
  memory.sent_before(0)[to] = 0;
  for (uint32_t r = rounds_of(memory.shape, tokens); r <= memory.handle.rounds; ++r) {
    memory.sent_before(r)[to] = total;
  }
}

// Verb of a block's threads, while it has the sets of tokens [first, end): what goes to each rank and node before a
// round that begins among them.
template <class Wire>
UCCLEP_FN void note_sent_before(const HtUpdateArgs& args, const HtSets& sets, uint32_t first) {
  const HandleMemory memory = memory_of(args);
  if (memory.handle.rounds == 1) return;
  const uint32_t of_round = memory.shape.ht_tokens;
  const uint32_t* const counts = ScanTables::of(memory.shape).counts;
  for (uint32_t r = first == 0 ? 1 : (first - 1) / of_round + 1; r * of_round < sets.end; ++r) {
    const uint32_t all = memory.shape.ranks + (Wire::network ? memory.shape.nodes.nodes : 0);
    for (uint32_t to = thread_id(); to < all; to += block_size()) {
      const uint32_t column = to < memory.shape.ranks ? to : to + memory.shape.experts;
      memory.sent_before(r)[to] = counts[column] + Wire::count_before(sets, column, r * of_round);
    }
  }
}

// Block verb, after that: what lower blocks have, and in the last one the totals.
template <class Wire>
UCCLEP_FN void add_blocks(const HtUpdateArgs& args, uint32_t blocks) {
  constexpr uint32_t batch = 8;  // loads in flight
  const HandleMemory memory = memory_of(args);
  const GroupShape& shape = memory.shape;
  uint32_t* counts = ScanTables::of(shape).counts;
  for (uint32_t c = thread_id(); c < ScanTables::columns(shape); c += block_size()) {
    uint32_t before = 0, total = 0;
    for (uint32_t first = 0; first < blocks; first += batch) {
      uint32_t of_blocks[batch];
      UCCLEP_UNROLL
      for (uint32_t j = 0; j < batch; ++j) of_blocks[j] = first + j < blocks ? memory.chunk(first + j)[c] : 0;
      UCCLEP_UNROLL
      for (uint32_t j = 0; j < batch; ++j) {
        total += of_blocks[j];
        if (first + j < block_id()) before += of_blocks[j];
      }
    }
    counts[c] = before;
    if (!sums_counts()) continue;
    if constexpr (Wire::network) {
      if (c >= shape.ranks + shape.experts) {
        memory.rows_to_nodes()[c - shape.ranks - shape.experts] = total;
        note_all_sent(memory, args.routing.tokens, c - shape.experts, total);
        continue;
      }
    }
    if (c >= shape.ranks + shape.experts) continue;
    if (c < shape.ranks) note_all_sent(memory, args.routing.tokens, c, total);
    (c < shape.ranks ? memory.rows_to()[c] : memory.counts_to()[c - shape.ranks]) = total;
  }
}

// Warp verb: the selections of wave_size / K tokens from `first` on, side by side, into the handle.
template <class Wire>
UCCLEP_FN void place_selections(const HtUpdateArgs& args, const HtSets& sets, uint32_t first, uint32_t end,
                                int64_t* bad) {
  const HandleMemory memory = memory_of(args);
  const RoutingInput& input = args.routing;
  const GroupShape& shape = memory.shape;
  const uint32_t* counts = ScanTables::of(shape).counts;
  const uint32_t side = lane_id() / shape.top_k, k = lane_id() - side * shape.top_k, token = first + side;
  const bool used = side < wave_size / shape.top_k && token < end;
  int64_t id = -1;
  if (used && k < input.top_k) id = load_index(input.topk_idx, token, k);
  int64_t out_of_range = no_bad_id;  // count_tokens has reported it
  const uint32_t expert = ExpertIds::of(args.group, input).expert(token, id, &out_of_range);
  bool valid = expert != no_expert;
  const uint32_t nobody = 0xffff0000u | lane_id(), token_bits = side << 16;
  if (first_lane(match_any(valid ? token_bits | expert : nobody)) != lane_id()) {
    *bad = id;
    valid = false;
  }
  const uint32_t rank = valid ? shape.rank_of(expert) : 0;
  const bool sends = first_lane(match_any(valid ? token_bits | rank : nobody)) == lane_id() && valid;
  uint32_t node_place = no_place;
  if constexpr (Wire::network) {
    const uint32_t node = Wire::node_of(args.group, rank), column = shape.ranks + shape.experts + node;
    const bool leads = first_lane(match_any(valid ? token_bits | node : nobody)) == lane_id() && valid;
    if (used && leads && args.group.windows[rank] == nullptr) {
      node_place = counts[column] + Wire::count_before(sets, column, token);
    }
  }
  if (!used) return;
  if constexpr (Wire::network) memory.node_places(token)[k] = node_place;
  const uint64_t i = uint64_t{token} * shape.top_k + k;
  memory.at<int32_t>(memory.handle.offsets.topk)[i] = valid ? static_cast<int32_t>(expert) : -1;
  memory.at<uint32_t>(memory.handle.offsets.places)[i] =
      sends ? counts[rank] + sets.count_before(rank, token) : no_place;
  const uint32_t column = sets.column_of(expert);
  memory.at<uint32_t>(memory.handle.offsets.positions)[i] =
      valid ? counts[column] + sets.count_before(column, token) : 0;
}

// Block verb, after add_blocks: tokens [begin, end) into the handle.
template <class Wire>
UCCLEP_FN void place_tokens(const HtUpdateArgs& args, HtSets& sets, const WarpUniform& begin, const WarpUniform& end,
                            int64_t* bad) {
  const WarpUniform step = wave_size / args.group.shape.top_k;
  for (WarpUniform first = begin; first < end; first += sets.capacity) {
    sets.require(first, end, bad);
    note_sent_before<Wire>(reload(args), sets, first);
    for (WarpUniform token = first + warp_id() * step; token < sets.end; token += block::warps() * step) {
      place_selections<Wire>(reload(args), sets, token, sets.end, bad);
    }
    if (sets.end == end) break;
    sync_block();
    const GroupShape& shape = reload(args).group.shape;
    uint32_t* counts = ScanTables::of(shape).counts;
    for (uint32_t c = thread_id(); c < ScanTables::columns(shape); c += block_size()) {
      counts[c] += Wire::count_before(sets, c, sets.end);
    }
    sync_block();
  }
}

// Grid verb: routes all tokens of this rank. header(peer) sends the header, and is called by a warp of the last block
// when rows_to and counts_to hold what is for that peer. selection_of is for the next launch.
template <class Wire, class Header>
UCCLEP_FN bool route(const Op& op, const HtUpdateArgs& args, Header&& header) {
  const ScanShares shares = ScanShares::of(args.routing.tokens, grid_size());
  const bool mine = shares.mine();
  const WarpUniform begin = mine ? shares.begin() : 0, end = mine ? shares.end(args.routing.tokens) : 0;
  HtSets sets{args, ScanTables::of(args.group.shape).sets, args.routing.set_tokens};
  int64_t bad = no_bad_id;
  count_tokens<Wire>(args, sets, begin, end, &bad);
  if (mine) leave_counts(op, args);
  if (!mine && !sums_counts()) return true;
  const uint32_t before = sums_counts() ? shares.blocks : block_id();
  if (!wait_for_counts(op, before, Wire::barrier_abort(op))) return false;
  add_blocks<Wire>(reload(args), before);
  sync_block();
  if (sums_counts()) {
    for (uint32_t i = warp_id(); i < op.ranks(); i += block::warps()) header(op.rotated(i));
  }
  if (mine) place_tokens<Wire>(reload(args), sets, begin, end, &bad);
  report_bad_id(op, bad);
  return true;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
