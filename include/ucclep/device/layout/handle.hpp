// SPDX-License-Identifier: Apache-2.0
// Where every byte of a handle's memory lives, which its own rank's kernels alone write and read: the routing, and what
// the exchange of counts told. As in layout/window.hpp, plain arithmetic on the group's shape.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

// One row that this rank received, as combine needs it: where it lies for each local expert, experts ascending.
struct alignas(16) RecvEntry {
  uint32_t row;     // in the expert's slab (LL) or in the output (HT)
  uint32_t expert;  // local
  float weight;     // given with dispatch
  uint32_t k;       // which of the source's selections: finds a weight given with combine
};

// Where a partial row of a node lies that a relay adds up for a home elsewhere: in the staging of a rank, by place.
struct alignas(8) RelayEntry {
  uint32_t rank, place;
};

// Tokens whose sets a block holds at a time; more take more rounds. A group with very many experts keeps its sets in
// the handle's memory, and then one block counts.
struct TokenSetShape {
  uint32_t tokens;  // a multiple of 64, as the token bits of a header are; 0: in the handle

  static constexpr uint32_t shared_bytes = 24 * 1024;
  static UCCLEP_HD constexpr TokenSetShape of(const GroupShape& shape) {
    const uint32_t fit = shared_bytes * 8 / (shape.ranks + shape.experts) / 64 * 64,
                   all = (shape.ll_tokens + 63) / 64 * 64;
    return {fit < all ? fit : all};
  }
  static UCCLEP_HD constexpr uint64_t bytes_of(const GroupShape& shape, uint64_t tokens) {
    return round_up((uint64_t{shape.ranks} + shape.experts) * (tokens / 32) * 4, 16);
  }
  UCCLEP_HD constexpr uint64_t bytes(const GroupShape& shape) const { return bytes_of(shape, tokens); }
};

// Where a handle has the words of its tiles (ucclEpTiles_t), and what its kernels keep to write them. Rows of an expert
// lie in whole tiles: in LL in a slab, in HT in a zone, whose place and size Update knows.
struct TileLayout {
  uint64_t slab, tiles;                           // LL: rows of an expert, HT: 0; tiles of all experts
  uint64_t ready, done, experts;                  // u32, u32, i32 [tiles]
  uint64_t final, first_row;                      // i32, i64 [L]
  uint64_t src_info, weights, row_at, scales_at;  // i64, f32, u64, u64 [rows of all tiles]
  uint64_t taken, expected;  // u32 [L] places given to rows; rows that come of sources whose counts are known
  uint64_t arrived;          // u32 [tiles] rows that are here, and those that will never be
  uint64_t from;             // u32 [R] rows that a source sends, once its header has been read
  uint64_t queue;            // u32 [tiles] 1 + a tile that is ready, in the order in which tiles became so; then 0
  // Of a kernel that sends tiles:
  uint64_t sent;     // u32 [R] rows to a rank so far
  uint64_t served;   // u32 [R] rows of a source that are in tiles
  uint64_t waiting;  // u32 [tiles] 1 + a tile whose rows are made and have yet to leave, in the order of tiles::done
  uint64_t state;    // TileState
};
struct TileState {
  uint32_t resident;  // blocks that receive and have begun
  uint32_t closed;    // sources whose counts are known
  uint32_t left;      // blocks that have received all of theirs
  uint32_t received;  // tiles_failed, or tiles_received when all rows are here; until then 0
  uint32_t sending;   // blocks that send results back and have begun
  uint32_t queued;    // places of the queue that are taken
  uint32_t asked;     // times that a kernel asked for a tile of the queue, or a part of one
  uint32_t all;       // 1 + the tiles that the queue will have; 0 while nobody knows
  // Of a kernel that sends tiles:
  uint32_t tokens;            // sent so far
  uint32_t closers;           // scopes that send no more
  uint32_t parts;             // of a tile, as they are handed out
  uint32_t waiting, leaving;  // places of that list that are taken; of these, tiles that a block sends, or has sent
  uint32_t blocks;            // that have come to close_back
};
constexpr uint32_t tiles_received = 1, tiles_failed = 2;

// A handle's device memory. B is what an operation has at most, C its chunks.
struct HandleLayout {
  uint64_t copies_in;  // u32 [R][B] how many of `copies` there are so far; LL
  uint64_t runs_in;    // u32 [R][B / run_rows] partial rows of a run that a user's kernel has staged so far; HT
  uint64_t relayed;    // u32 [rounds][blocks] rows that the last dispatch relayed to this node; HT between nodes
  uint64_t sent_to;    // u32 [R] rows that a user's kernel has sent to a rank of another domain so far; LL
  uint64_t noted;      // u64 [R][B] the last dispatch whose row of a source row_homes has; LL. With tiles: whose row
                       // has arrived, 0 while none has since a dispatch began
  uint64_t zeroed;     // bytes that begin as zero: the state and what is above
  uint64_t topk;       // i32 [B][K] expert or -1
  uint64_t
      places;  // u32 [B][K] place among the rows to that rank; no_place but for the token's first selection of the rank
  uint64_t positions;      // u32 [B][K] position among the rows of that expert
  uint64_t chunks;         // u32 [C][R + E + nodes] rows (per rank, expert, node) of each block that routed
  uint64_t rows_to;        // u32 [R]
  uint64_t counts_to;      // u32 [E]
  uint64_t rows_from;      // u32 [R]
  uint64_t tokens_from;    // u32 [R]
  uint64_t forms_from;     // u32 [R]
  uint64_t counts_from;    // u32 [R][L]
  uint64_t recv_base;      // u32 [R + 1] rows of lower sources
  uint64_t expert_base;    // u32 [R][L] first row of that source in the zone or slab of that expert
  uint64_t recv_count;     // u32 [R][B] entries of a received row
  uint64_t recv_entries;   // RecvEntry [R][B][K]
  uint64_t token_sets;     // u32 [R + E][B / 32]; HT: only where blocks cannot hold them (TokenSetShape)
  uint64_t sent_before;    // u32 [rounds + 1][R + nodes] rows for a rank, or node, of rounds below one; in LL of waves
  uint64_t come_before;    // u32 [rounds + 1][R] of HT, the same of rows from a rank, as the last dispatch found them
  uint64_t parts_read;     // u32 [rounds] of a round of the running operation what has been read, else 0; HT
  uint64_t rows_to_nodes;  // u32 [nodes] HT between nodes, and LL where it sends a row to a node once
  // HT between nodes:
  uint64_t node_places;    // u32 [B][K] place among the rows to that node; no_place but for the token's first selection
                           // of another node
  uint64_t relay_counts;   // u32 [blocks][relay_rows] entries of a row that was relayed, ranks ascending
  uint64_t relay_entries;  // RelayEntry [blocks][relay_rows][K]
  // For device-initiated operations (user/operation.hpp):
  uint64_t metas;  // [max_warps][meta_scratch] in which a warp puts together what it sends
  // LL, for the same:
  uint64_t weights;    // f32 [B][K] what the rows of the dispatch were given
  uint64_t row_homes;  // u32 [L][R * B] of a row in a slab: source rank * B + place
  uint64_t copies;     // const char* [R][B][K] copies of a received row that combine was given, experts ascending
  TileLayout tiles;    // of a handle that has some
  uint64_t bytes;

  static constexpr uint32_t max_warps = 16, meta_scratch = 512;
  static constexpr uint64_t state_bytes = 256;  // of HandleState, which comes first

  // Rows of a block at a relay, those of each round from a place of its own on.
  static UCCLEP_HD constexpr uint64_t relay_rows(const GroupShape& s, uint64_t tokens, uint32_t rounds) {
    return rounds == 1 ? tokens : uint64_t{rounds} * s.ht_tokens;
  }

  // HT: rows that zones of experts have at most, padded to `alignment`, and that a group keeps.
  static UCCLEP_HD constexpr uint64_t rows_of_zones(const GroupShape& s, uint64_t tokens, uint32_t alignment) {
    const uint64_t experts = s.local_experts(), copies = s.top_k < experts ? s.top_k : experts;
    const uint64_t rows = tokens * s.ranks * copies + experts * (alignment - 1);
    return rows < s.recv_rows ? rows : s.recv_rows;
  }

  static UCCLEP_HD constexpr HandleLayout of(const GroupShape& s, uint64_t tokens, bool low_latency, uint32_t waves = 1,
                                             uint32_t tile_rows = 0) {
    constexpr uint64_t unit = 128;
    const uint64_t columns = uint64_t{s.ranks} + s.experts + s.nodes.nodes;
    const uint64_t nodes = low_latency ? 0 : s.nodes.nodes, blocks = low_latency ? 0 : s.nodes.blocks();
    const uint32_t rounds = low_latency ? 0 : rounds_of(s, tokens);
    HandleLayout h{};
    uint64_t at = round_up(state_bytes, unit);
    const auto take = [&at](uint64_t bytes) {
      const uint64_t offset = at;
      at = round_up(at + bytes, unit);
      return offset;
    };
    h.copies_in = take(low_latency ? 4 * tokens * s.ranks : 0);
    h.runs_in = take(low_latency ? 0 : 4 * ceil_div(tokens, run_rows) * s.ranks);
    h.relayed = take(4 * blocks * rounds);
    h.sent_to = take(low_latency && s.networked != 0 ? 4ull * s.ranks : 0);
    h.noted = take(low_latency ? 8 * tokens * s.ranks : 0);
    h.zeroed = at;
    h.topk = take(4 * tokens * s.top_k);
    h.places = take(4 * tokens * s.top_k);
    h.positions = take(4 * tokens * s.top_k);
    h.chunks = take(4 * ceil_div(tokens, chunk_tokens) * columns);
    h.rows_to = take(4ull * s.ranks);
    h.counts_to = take(4ull * s.experts);
    h.rows_from = take(4ull * s.ranks);
    h.tokens_from = take(4ull * s.ranks);
    h.forms_from = take(4ull * s.ranks);
    h.counts_from = take(4ull * s.experts);
    h.recv_base = take(4ull * (s.ranks + 1));
    h.expert_base = take(4ull * s.experts);
    h.recv_count = take(4 * s.ranks * tokens);
    h.recv_entries = take(sizeof(RecvEntry) * s.ranks * tokens * s.top_k);
    const bool in_handle = low_latency || TokenSetShape::of(s).tokens == 0;
    h.token_sets = take(in_handle ? TokenSetShape::bytes_of(s, round_up(tokens, 64)) : 0);
    h.sent_before = take(4 * (uint64_t{low_latency ? waves : rounds} + 1) * (s.ranks + s.nodes.nodes));
    h.come_before = take(4 * (uint64_t{rounds} + 1) * s.ranks);
    h.parts_read = take(4 * uint64_t{rounds});
    h.node_places = take(nodes == 0 ? 0 : 4 * tokens * s.top_k);
    h.rows_to_nodes = take(4 * (low_latency ? uint64_t{s.node_copies} * s.nodes.nodes : nodes));
    const uint64_t relayed = relay_rows(s, tokens, rounds) * blocks;
    h.relay_counts = take(4 * relayed);
    h.relay_entries = take(sizeof(RelayEntry) * s.top_k * relayed);
    h.metas = take(uint64_t{max_warps} * meta_scratch);
    if (low_latency) {
      h.weights = take(4 * tokens * s.top_k);
      h.row_homes = take(4 * tokens * s.experts);
      h.copies = take(8 * tokens * s.ranks * s.top_k);
    }
    if (tile_rows != 0) {
      TileLayout& t = h.tiles;
      const uint64_t experts = s.local_experts();
      if (low_latency) t.slab = round_up(tokens * s.ranks, tile_rows);
      const uint64_t rows = low_latency ? experts * t.slab : rows_of_zones(s, tokens, tile_rows);
      t.tiles = ceil_div(rows, tile_rows);
      t.ready = take(4 * t.tiles);
      t.done = take(4 * t.tiles);
      t.experts = take(4 * t.tiles);
      t.final = take(4 * experts);
      t.first_row = take(8 * experts);
      t.src_info = take(8 * t.tiles * tile_rows);
      t.weights = take(4 * t.tiles * tile_rows);
      t.row_at = take(8 * t.tiles * tile_rows);
      t.scales_at = take(8 * t.tiles * tile_rows);
      t.taken = take(4 * experts);
      t.expected = take(4 * experts);
      t.arrived = take(4 * t.tiles);
      t.from = take(4ull * s.ranks);
      t.queue = take(4 * t.tiles);
      t.sent = take(4ull * s.ranks);
      t.served = take(4ull * s.ranks);
      t.waiting = take(4 * t.tiles);
      t.state = take(sizeof(TileState));
    }
    h.bytes = at;
    return h;
  }
};

// In the place of HandleState::capacity since an HT Update that no dispatch has followed.
constexpr uint32_t not_dispatched = 0xffffffffu;

// At the start of a handle's memory. Written by kernels only, on the handle's stream.
struct HandleState {
  uint32_t tokens;                       // T of the last Update
  uint32_t top_k;                        // K of the last Update
  uint32_t updated;                      // the handle's stamp once routed; 0 again when ranks disagreed on the settings
  uint32_t rows;                         // N, after the exchange
  uint32_t weighted;                     // 1: the last dispatch came with weights
  uint32_t capacity;                     // HT: of these N, how many the last dispatch had room for, or not_dispatched
  uint32_t rounds;                       // HT: of an operation, as the largest T of all ranks needs
  uint32_t awaited;                      // HT: rows, without pads, that a user's kernel receives of the last dispatch
  uint64_t device_initiated[num_kinds];  // the last device-initiated operation of a kind
  uint64_t updates;                      // HT Updates that have ended
  uint64_t sent[num_kinds];              // the last operation of a kind whose send phase has ended here (send_only)
  uint64_t received[num_kinds];          // of the last that a user's kernel received: how much (user/receive.hpp)
  uint64_t agreed[num_kinds];            // the last whose headers a user's kernel has read
};
static_assert(sizeof(HandleState) <= HandleLayout::state_bytes, "what follows begins there");

// Memory of a group in which kernels of users keep the copies of a row until the last one is there: combines of HT in
// EXPERT_MAJOR (ht_combine.hpp). Only one of a group is pending at a time. In LL the handle has room for them
// (layout/handle.hpp).
// B is that of HT, L the local experts.
struct CopyTables {
  uint64_t in;      // u32 [R][B] how many copies of a received row there are so far
  uint64_t zeroed;  // bytes that begin as zero: what is above
  uint64_t homes;   // u32 [L][R * B] of a row in a zone: source rank * B + place
  uint64_t rows;    // const char* [R][B][K] the copies, experts ascending
  uint64_t bytes;

  static UCCLEP_HD constexpr CopyTables of(const GroupShape& shape) {
    constexpr uint64_t unit = 128;
    const uint64_t received = uint64_t{shape.ranks} * shape.ht_tokens;
    CopyTables t{};
    t.zeroed = t.homes = round_up(4 * received, unit);
    t.rows = t.homes + round_up(4 * received * shape.local_experts(), unit);
    t.bytes = t.rows + 8 * received * shape.top_k;
    return t;
  }
};

}  // namespace ucclep
