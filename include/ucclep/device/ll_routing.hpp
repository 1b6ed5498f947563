// SPDX-License-Identifier: Apache-2.0
// The routing of an LL dispatch. A barrier of the grid costs more than what it would share out: every block reads all
// of the rank's ids, and each warp counts for its own tokens what lies before them. So there is no barrier between
// blocks, and no table.
#pragma once
#include "ucclep/device/routing.hpp"

namespace ucclep {

// Ids that a block holds in shared memory at a time; more tokens take more rounds.
struct TileShape {
  uint32_t tokens;

  static constexpr uint32_t wanted_ids = 8192;
  static UCCLEP_HD constexpr TileShape of(uint32_t top_k) { return {wanted_ids / top_k}; }
  UCCLEP_HD constexpr uint64_t bytes(uint32_t top_k) const { return round_up(2ull * tokens * top_k, 16); }
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Tokens [first, end) of this rank, ids checked: none out of range, none twice in a row.
struct Tile {
  const GroupShape& shape;
  const RoutingInput& input;
  uint16_t* ids;
  uint32_t first = 0, end = 0;

  UCCLEP_FN uint32_t capacity() const { return TileShape::of(input.top_k).tokens; }
  UCCLEP_FN uint32_t id(uint32_t token, uint32_t k) const { return ids[(token - first) * input.top_k + k]; }

  // Block verb: the tile that begins with that token.
  UCCLEP_FN void require(uint32_t from, int64_t* bad) {
    if (end != 0 && first == from) return;
    sync_block();  // nobody reads the old one any more
    first = from;
    end = from + capacity() < input.tokens ? from + capacity() : input.tokens;
    load_ids(block{}, shape, input, first, end, ids, bad);
    sync_block();
    for (uint32_t token = first + thread_id(); token < end; token += block_size()) {
      uint16_t* row = ids + (token - first) * input.top_k;
      for (uint32_t k = 1; k < input.top_k; ++k) {
        for (uint32_t j = 0; j < k; ++j) {
          if (row[k] == no_expert || row[j] != row[k]) continue;
          *bad = row[k];
          row[k] = no_expert;
        }
      }
    }
    sync_block();
  }
};

// What lies before the tokens that the warps of a block have in hand: all warps count for all of them, since few tokens
// leave most warps without one. Part `warp` of each array belongs to the token of that warp.
struct BlockCounts {
  static UCCLEP_HD constexpr uint64_t bytes(uint32_t warps, uint32_t top_k) {
    return round_up(12ull * warps * top_k, 16);
  }
  uint32_t* experts;  // [warp][K], none where there is no selection
  uint32_t* rows;     // [warp][K]: tokens before with a row to the same rank
  uint32_t* copies;   // [warp][K]: tokens before with the same expert
  uint32_t top_k;

  static constexpr uint32_t none = 0xffffffffu;

  static UCCLEP_FN BlockCounts at(char* base, uint32_t warps, uint32_t top_k) {
    auto* words = reinterpret_cast<uint32_t*>(base);
    return {words, words + warps * top_k, words + 2 * warps * top_k, top_k};
  }
  // Warp verbs, a sync_block between them and count_before.
  UCCLEP_FN void begin(const Selection& selection) const {
    const uint32_t k = lane_id();
    if (k >= top_k) return;
    const uint32_t i = warp_id() * top_k + k;
    experts[i] = static_cast<uint32_t>(selection.expert);
    rows[i] = copies[i] = 0;
  }
  UCCLEP_FN void end(Selection& selection) const {
    const uint32_t k = lane_id();
    if (k >= top_k) return;
    const uint32_t i = warp_id() * top_k + k;
    if (selection.place != no_place) selection.place += rows[i];
    selection.position += copies[i];
  }
};

// Warp verb: this warp's share of what the tile holds before `token`, which warp `owner` has in hand. Lanes take a
// token each, and mark in bit k what it shares with selection k.
UCCLEP_FN void count_before(const Tile& tile, const BlockCounts& counts, uint32_t owner, uint32_t token) {
  constexpr uint32_t batch = 4;
  const uint32_t local = tile.shape.local_experts(), top_k = counts.top_k;
  const uint32_t end = token < tile.end ? token : tile.end;
  const uint32_t at = owner * top_k + lane_id();
  const uint32_t expert = lane_id() < top_k ? counts.experts[at] : BlockCounts::none;
  for (uint32_t base = tile.first + warp_id() * wave_size; base < end; base += block_size()) {
    const uint32_t other = base + lane_id();
    uint32_t same_expert = 0, same_rank = 0;
    for (uint32_t q = 0; q < top_k; q += batch) {
      uint32_t ids[batch];
      UCCLEP_UNROLL
      for (uint32_t j = 0; j < batch; ++j) {
        ids[j] = other < end && q + j < top_k ? tile.id(other, q + j) : uint32_t{no_expert};
      }
      UCCLEP_KEEP_LOOP
      for (uint32_t k = 0; k < top_k; ++k) {
        const uint32_t mine = broadcast(expert, k);
        if (mine == BlockCounts::none) continue;
        const uint32_t rank_begin = mine - mine % local;
        bool at_expert = false, at_rank = false;
        UCCLEP_UNROLL
        for (uint32_t j = 0; j < batch; ++j) {
          at_expert = at_expert || ids[j] == mine;
          at_rank = at_rank || ids[j] - rank_begin < local;  // no_expert is in no rank's range
        }
        same_expert |= (at_expert ? 1u : 0u) << k;
        same_rank |= (at_rank ? 1u : 0u) << k;
      }
    }
    UCCLEP_KEEP_LOOP
    for (uint32_t k = 0; k < top_k; ++k) {
      const uint32_t rows = count_lanes(ballot((same_rank >> k & 1) != 0));
      const uint32_t copies = count_lanes(ballot((same_expert >> k & 1) != 0));
      if (lane_id() != k) continue;
      if (rows != 0) fetch_add_relaxed<Scope::gpu>(counts.rows + at, rows);
      if (copies != 0) fetch_add_relaxed<Scope::gpu>(counts.copies + at, copies);
    }
  }
}

// Warp verb: lane k's selection of a token, before anything is counted.
UCCLEP_FN Selection begin_selection(const GroupShape& shape, const RoutingInput& input, uint32_t token, int64_t* bad) {
  const uint32_t k = lane_id();
  int64_t given = -1;
  if (k < input.top_k) given = load_index(input.topk_idx, token, k);
  const bool in_range = given >= 0 && given < shape.experts;
  if (!in_range && given != -1) *bad = given;
  const uint32_t id = without_repeats(shape, in_range ? static_cast<uint32_t>(given) : uint32_t{no_expert}, bad);
  const bool valid = id != no_expert;
  Selection s{valid ? static_cast<int32_t>(id) : -1, valid ? id / shape.local_experts() : 0, no_place, 0};
  const bool sends = first_lane(match_any(valid ? s.rank : shape.ranks + k)) == k && valid;
  if (sends) s.place = 0;
  return s;
}

// Warp verb: what combine will need of it. Ids that the handle keeps already are read by all blocks: they stay.
UCCLEP_FN void keep_selection(const HandleMemory& memory, const RoutingInput& input, uint32_t token,
                              const Selection& s) {
  const uint32_t k = lane_id();
  if (k >= memory.shape.top_k) return;
  const uint64_t i = uint64_t{token} * memory.shape.top_k + k;
  auto* ids = memory.at<int32_t>(memory.handle.offsets.topk);
  if (input.topk_idx.data != reinterpret_cast<const char*>(ids)) ids[i] = s.expert;
  memory.at<uint32_t>(memory.handle.offsets.places)[i] = s.place;
  memory.at<uint32_t>(memory.handle.offsets.positions)[i] = s.position;
}

// Block verb: this rank's rows for one peer, and for each of its experts, into rows_to and counts_to.
UCCLEP_FN void count_for_peer(const HandleMemory& memory, Tile& tile, uint32_t peer, int64_t* bad) {
  const uint32_t local = memory.shape.local_experts(), begin = peer * local;
  uint32_t* rows = memory.rows_to() + peer;
  uint32_t* counts = memory.counts_to() + begin;
  for (uint32_t l = thread_id(); l < local; l += block_size()) counts[l] = 0;
  if (thread_id() == 0) *rows = 0;
  for (uint32_t first = 0; first < tile.input.tokens; first += tile.capacity()) {
    tile.require(first, bad);
    sync_block();  // the zeros are there
    for (uint32_t token = tile.first + thread_id(); token < tile.end; token += block_size()) {
      bool any = false;
      for (uint32_t k = 0; k < tile.input.top_k; ++k) {
        const uint32_t l = tile.id(token, k) - begin;
        if (l >= local) continue;
        any = true;
        fetch_add_relaxed<Scope::gpu>(counts + l, 1u);
      }
      if (any) fetch_add_relaxed<Scope::gpu>(rows, 1u);
    }
  }
  sync_block();
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
