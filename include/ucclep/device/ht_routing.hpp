// SPDX-License-Identifier: Apache-2.0
// The scan of P5, by the whole grid, as HT's Update does it. A block has neighbouring tokens and divides them among its
// warps; a warp goes through its own one after the other, a lane per selection, so ranks and experts of one token never
// collide. Counts of lower warps, then of lower blocks, are added afterwards: one barrier of the grid.
//
// clang-format off
// | who releases                         | who acquires                         | what is ordered                      |
// |--------------------------------------|--------------------------------------|--------------------------------------|
// | sync_grid                            | sync_grid                            | every block's counts before anybody  |
// |                                      |                                      |   sums them up                       |
// clang-format on
#pragma once
#include "ucclep/device/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// A block's shared memory while it routes. All counts are per column: a rank each, then an expert each.
struct ScanTables {
  uint32_t* earlier;  // [R + E] rows of lower blocks
  char* warps;        // of each scanning warp: its ids and its counts

  static UCCLEP_HD constexpr uint64_t columns(const GroupShape& s) { return uint64_t{s.ranks} + s.experts; }
  static UCCLEP_HD constexpr uint64_t bytes(const GroupShape& s) { return round_up(4 * columns(s), 16); }
  static UCCLEP_HD constexpr uint64_t bytes_per_warp(const GroupShape& s) {
    return round_up(2ull * chunk_tokens * s.top_k, 16) + round_up(2 * columns(s), 16);
  }

  static UCCLEP_FN ScanTables of(const GroupShape& shape) {
    auto* base = static_cast<char*>(shared_memory());
    return {reinterpret_cast<uint32_t*>(base), base + bytes(shape)};
  }
  // u16 [chunk_tokens][K]: expert, or no_expert.
  UCCLEP_FN uint16_t* ids(const GroupShape& s, uint32_t warp) const {
    return reinterpret_cast<uint16_t*>(warps + bytes_per_warp(s) * warp);
  }
  // u16 [R + E]: rows of the warp, later those of the block's lower warps.
  UCCLEP_FN uint16_t* counts(const GroupShape& s, uint32_t warp) const {
    return ids(s, warp) + round_up(2ull * chunk_tokens * s.top_k, 16) / 2;
  }
};

// Who has which tokens. At most one block per chunk_tokens, since each leaves its counts in the handle.
struct ScanShares {
  // Estimated: a token takes as long as the counts of two or three blocks, which every block adds up.
  static constexpr uint32_t least_warp_tokens = 8;
  uint32_t of_block, of_warp, blocks;

  static UCCLEP_FN ScanShares of(const RoutingInput& input) {
    auto share = static_cast<uint32_t>(ceil_div(input.tokens, grid_size()));
    const uint32_t least = least_warp_tokens * input.scanners;
    if (share < least) share = least;
    if (share < chunk_tokens) share = chunk_tokens;
    return {share, static_cast<uint32_t>(ceil_div(share, input.scanners)),
            static_cast<uint32_t>(ceil_div(input.tokens, share))};
  }
  UCCLEP_FN uint32_t begin(uint32_t block) const { return block * of_block; }
};

UCCLEP_FN uint32_t smaller(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

// Warp verb: places and positions of tokens [begin, end), counted from `begin`, into the handle; their number into
// counts.
UCCLEP_FN void scan_tokens(const HandleMemory& memory, const RoutingInput& input, uint32_t begin, uint32_t end,
                           uint16_t* ids, uint16_t* counts, int64_t* bad) {
  const GroupShape& shape = memory.shape;
  const uint32_t k = lane_id();
  for (uint32_t c = k; c < ScanTables::columns(shape); c += wave_size) counts[c] = 0;
  for (uint32_t first = begin; first < end; first += chunk_tokens) {
    const uint32_t last = smaller(first + chunk_tokens, end);
    load_ids(warp{}, shape, input, first, last, ids, bad);
    sync_warp();
    for (uint32_t token = first; token < last; ++token) {
      uint32_t id = no_expert;
      if (k < input.top_k) id = ids[(token - first) * input.top_k + k];
      id = without_repeats(shape, id, bad);
      const bool valid = id != no_expert;
      const uint32_t rank = valid ? id / shape.local_experts() : shape.ranks + k;
      const bool sends = first_lane(match_any(rank)) == k && valid;
      if (k < shape.top_k) {
        const uint64_t i = uint64_t{token} * shape.top_k + k;
        memory.at<int32_t>(memory.handle.offsets.topk)[i] = valid ? static_cast<int32_t>(id) : -1;
        memory.at<uint32_t>(memory.handle.offsets.places)[i] = sends ? counts[rank]++ : no_place;
        memory.at<uint32_t>(memory.handle.offsets.positions)[i] = valid ? counts[shape.ranks + id]++ : 0;
      }
      sync_warp();  // the next token's lanes read these counts, and the next chunk's write the ids
    }
  }
}

// Block verb: counts of the warps become those of the lower warps; the sum goes to the handle.
UCCLEP_FN void add_warps(const HandleMemory& memory, const ScanTables& tables, uint32_t scanners) {
  uint32_t* sum = memory.chunk(block_id());
  for (uint32_t c = thread_id(); c < ScanTables::columns(memory.shape); c += block_size()) {
    uint32_t before = 0;
    for (uint32_t w = 0; w < scanners; ++w) {
      uint16_t& count = tables.counts(memory.shape, w)[c];
      const uint32_t own = count;
      count = static_cast<uint16_t>(before);
      before += own;
    }
    sum[c] = before;
  }
}

// Which of the grid's blocks sends the header to a peer, and so needs the totals for it.
UCCLEP_FN bool sends_header(const Op& op, uint32_t peer) {
  const uint32_t i = peer >= op.me() ? peer - op.me() : peer + op.ranks() - op.me();
  return i % grid_size() == block_id();
}

// Block verb, after the grid's barrier: what lower blocks have, and the totals for the peers of this block.
UCCLEP_FN void add_blocks(const Op& op, const HandleMemory& memory, const ScanTables& tables, uint32_t blocks) {
  constexpr uint32_t batch = 8;  // loads in flight
  const GroupShape& shape = memory.shape;
  for (uint32_t c = thread_id(); c < ScanTables::columns(shape); c += block_size()) {
    uint32_t before = 0, total = 0;
    for (uint32_t first = 0; first < blocks; first += batch) {
      uint32_t counts[batch];
      UCCLEP_UNROLL
      for (uint32_t j = 0; j < batch; ++j) counts[j] = first + j < blocks ? memory.chunk(first + j)[c] : 0;
      UCCLEP_UNROLL
      for (uint32_t j = 0; j < batch; ++j) {
        total += counts[j];
        if (first + j < block_id()) before += counts[j];
      }
    }
    tables.earlier[c] = before;
    const bool is_rank = c < shape.ranks;
    if (!sends_header(op, is_rank ? c : (c - shape.ranks) / shape.local_experts())) continue;
    (is_rank ? memory.rows_to()[c] : memory.counts_to()[c - shape.ranks]) = total;
  }
}

// Block verb, after add_blocks: places and positions of the block's tokens count from the first token of all.
UCCLEP_FN void place_tokens(const HandleMemory& memory, const ScanTables& tables, const ScanShares& shares,
                            uint32_t tokens) {
  const GroupShape& shape = memory.shape;
  const uint32_t begin = smaller(shares.begin(block_id()), tokens), end = smaller(begin + shares.of_block, tokens);
  for (uint32_t i = begin * shape.top_k + thread_id(); i < end * shape.top_k; i += block_size()) {
    const int32_t id = memory.at<int32_t>(memory.handle.offsets.topk)[i];
    if (id < 0) continue;
    const uint16_t* lower = tables.counts(shape, (i / shape.top_k - begin) / shares.of_warp);
    const uint32_t rank = static_cast<uint32_t>(id) / shape.local_experts(), expert = shape.ranks + id;
    uint32_t& place = memory.at<uint32_t>(memory.handle.offsets.places)[i];
    if (place != no_place) place += tables.earlier[rank] + lower[rank];
    memory.at<uint32_t>(memory.handle.offsets.positions)[i] += tables.earlier[expert] + lower[expert];
  }
}

// Grid verb: routes all tokens of this rank. header(peer) sends the header, and is called by a warp as soon as rows_to
// and counts_to hold what is for that peer. selection_of is for the next launch.
template <class Header>
UCCLEP_FN bool route(const Op& op, const HandleMemory& memory, const RoutingInput& input, Header&& header) {
  const GroupShape& shape = memory.shape;
  const ScanTables tables = ScanTables::of(shape);
  const ScanShares shares = ScanShares::of(input);
  if (warp_id() < input.scanners) {
    const uint32_t limit = smaller(shares.begin(block_id() + 1), input.tokens);
    const uint32_t begin = smaller(shares.begin(block_id()) + warp_id() * shares.of_warp, limit);
    int64_t bad = no_bad_id;
    scan_tokens(memory, input, begin, smaller(begin + shares.of_warp, limit), tables.ids(shape, warp_id()),
                tables.counts(shape, warp_id()), &bad);
    report_bad_id(op, bad);
  }
  sync_block();
  if (block_id() < shares.blocks) add_warps(memory, tables, input.scanners);
  if (!sync_grid(op)) return false;
  add_blocks(op, memory, tables, shares.blocks);
  sync_block();
  for (uint32_t i = grid_warp(); i < op.ranks(); i += grid_warps()) header(op.rotated(i));
  place_tokens(memory, tables, shares, input.tokens);
  return true;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
