// SPDX-License-Identifier: Apache-2.0
// Tiles: received rows lie dense in their expert's slab (LL) or zone (HT), in the order in which they arrived, and each
// run of tile_rows of them has a word that says when it is there (ucclEpTiles_t). Who receives a row gives it the next
// place, writes it and counts it; who completes a tile says so. The counts of the headers, in HT those of Update, tell
// how many rows an expert gets. When those of all sources are known, the rows that its last tile will never get are
// counted as if they were there. On the way back a row's partial sum may leave when the tiles of all its copies are
// done (awaited_tile).
//
// Nobody waits for a row while others are there: each lane looks for some rows of one source, one after the other, and
// its warp takes those that have arrived (LaneRows, take_as_they_come).
//
// clang-format off
// | who releases                                   | who acquires                        | what is ordered                |
// |------------------------------------------------|-------------------------------------|--------------------------------|
// | open_tiles: the end of the send phase          | what the stream has after it        | all words as they begin        |
// | count_rows: fetch_add_acq_rel of arrived (gpu) | the one that completes the tile: the| a row, its scales and its index|
// |   by a lane that has seen what its warp wrote  |   same                              |   before its tile's word       |
// |   (sync_warp, bulk_wait_written)               |                                     |                                |
// | close_tiles: the same, after rows_final        | the same                            | rows_final before the word of  |
// |                                                |                                     |   the last tile and after      |
// | set_tile: compare_exchange of tile_ready (gpu) | consumers: load_acquire (gpu), for  | all of that before what they   |
// |                                                |   bulk copies a fence of the proxy  |   read                         |
// | set_tile: store_release of the queue (gpu)     | who asks for a tile: load_acquire   | the same                       |
// | close_tiles: store_release of all (gpu)        | the same                            | rows_final                     |
// | note_arrived: store_release (gpu) by a lane    | awaited_tile: load_acquire (gpu)    | where the copies of a row lie  |
// |   that has seen what its warp wrote            |                                     |   before they are looked up    |
// | expect_rows: store_release of a source's rows  | TileSender: load_acquire (gpu)      | nothing else                   |
// |   (gpu)                                        |                                     |                                |
// | consumers: add_release (gpu) of tile_done, or a| awaited_tile: load_acquire (system),| results before they are summed |
// |   write of the stream                          |   then sync_warp                    |                                |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/record.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// What a tile's word says.
constexpr uint32_t tile_is_ready = 1, tile_is_none = 2;

// Typed access to a handle's tiles.
struct Tiles {
  const HandleMemory& memory;

  UCCLEP_FN const TileLayout& at() const { return memory.handle.offsets.tiles; }
  UCCLEP_FN uint32_t rows_of_tile() const { return memory.handle.tile_rows; }
  UCCLEP_FN uint64_t count() const { return at().tiles; }
  UCCLEP_FN bool in_slabs() const { return at().slab != 0; }
  // Numbers of an expert's rows and tiles, counted over all experts.
  UCCLEP_FN uint64_t row(uint32_t expert, uint32_t place) const {
    return static_cast<uint64_t>(first_row()[expert]) + place;
  }
  UCCLEP_FN uint32_t tile(uint32_t expert, uint32_t index) const {
    return static_cast<uint32_t>(row(expert, 0) / rows_of_tile()) + index;
  }

  UCCLEP_FN uint32_t* ready() const { return memory.at<uint32_t>(at().ready); }
  UCCLEP_FN uint32_t* done() const { return memory.at<uint32_t>(at().done); }
  UCCLEP_FN int32_t* experts() const { return memory.at<int32_t>(at().experts); }
  UCCLEP_FN uint32_t* final() const { return memory.at<uint32_t>(at().final); }
  UCCLEP_FN int64_t* first_row() const { return memory.at<int64_t>(at().first_row); }
  UCCLEP_FN int64_t* src_info() const { return memory.at<int64_t>(at().src_info); }
  UCCLEP_FN float* weights() const { return memory.at<float>(at().weights); }
  UCCLEP_FN uint64_t* row_at() const { return memory.at<uint64_t>(at().row_at); }
  UCCLEP_FN uint64_t* scales_at() const { return memory.at<uint64_t>(at().scales_at); }
  UCCLEP_FN uint32_t* taken() const { return memory.at<uint32_t>(at().taken); }
  UCCLEP_FN uint32_t* expected() const { return memory.at<uint32_t>(at().expected); }
  UCCLEP_FN uint32_t* arrived() const { return memory.at<uint32_t>(at().arrived); }
  UCCLEP_FN uint32_t* from() const { return memory.at<uint32_t>(at().from); }
  UCCLEP_FN uint32_t* queue() const { return memory.at<uint32_t>(at().queue); }
  UCCLEP_FN uint32_t* sent() const { return memory.at<uint32_t>(at().sent); }
  UCCLEP_FN uint32_t* served() const { return memory.at<uint32_t>(at().served); }
  UCCLEP_FN uint32_t* waiting() const { return memory.at<uint32_t>(at().waiting); }
  UCCLEP_FN TileState* state() const { return memory.at<TileState>(at().state); }
};
constexpr uint32_t not_closed = ~0u;  // rows_final: -1; rows of a source whose header has not been read

// Where experts have their tiles, and how many rows are known to come for them, when a dispatch begins: in LL slabs,
// and none; in HT what Update has left, if ranks agreed.
struct TileZones {
  const Tiles& tiles;
  uint32_t rows;  // HT: of all zones

  static UCCLEP_FN TileZones of(const Tiles& tiles) {
    const HandleState& state = *tiles.memory.state();
    return {tiles, state.updated == tiles.memory.handle.stamp ? state.rows : 0};
  }
  UCCLEP_FN int32_t expert_of(uint64_t tile) const {
    const uint64_t row = tile * tiles.rows_of_tile();
    if (tiles.in_slabs()) return static_cast<int32_t>(row / tiles.at().slab);
    if (row >= rows) return -1;
    return static_cast<int32_t>(
        last_up_to(tiles.memory.expert_base(0), tiles.memory.shape.local_experts(), static_cast<uint32_t>(row)));
  }
  UCCLEP_FN uint64_t first_row(uint32_t expert) const {
    if (tiles.in_slabs()) return expert * tiles.at().slab;
    return rows == 0 ? 0 : tiles.memory.expert_base(0)[expert];
  }
  UCCLEP_FN uint32_t known(uint32_t expert) const {
    if (rows == 0) return 0;
    const uint32_t last = tiles.memory.shape.ranks - 1;
    return tiles.memory.expert_base(last)[expert] + tiles.memory.counts_from(last)[expert] -
           tiles.memory.expert_base(0)[expert];
  }
};

// Threads of the grid that share out what is set for tiles and experts.
struct TileShare {
  uint64_t first, step;

  static UCCLEP_FN TileShare of_grid() {
    return {uint64_t{block_id()} * block_size() + thread_id(), uint64_t{grid_size()} * block_size()};
  }
};

// Grid verb, in the send phase of a dispatch, whatever becomes of it.
UCCLEP_FN void open_tiles(const HandleMemory& memory) {
  const Tiles tiles{memory};
  const TileZones zones = TileZones::of(tiles);
  const TileShare share = TileShare::of_grid();
  for (uint64_t t = share.first; t < tiles.count(); t += share.step) {
    tiles.ready()[t] = tiles.done()[t] = tiles.arrived()[t] = tiles.queue()[t] = 0;
    tiles.experts()[t] = zones.expert_of(t);
  }
  for (uint64_t l = share.first; l < memory.shape.local_experts(); l += share.step) {
    const auto expert = static_cast<uint32_t>(l);
    tiles.final()[l] = not_closed;
    tiles.taken()[l] = 0;
    tiles.expected()[l] = tiles.in_slabs() ? 0 : zones.known(expert);
    tiles.first_row()[l] = static_cast<int64_t>(zones.first_row(expert));
  }
  for (uint64_t r = share.first; r < memory.shape.ranks; r += share.step) tiles.from()[r] = not_closed;
  // Of LL: results of HT do not go back before the dispatch has ended.
  const uint64_t rows = tiles.in_slabs() ? uint64_t{memory.shape.ranks} * memory.handle.tokens : 0;
  for (uint64_t i = share.first; i < rows; i += share.step) memory.noted(0)[i] = 0;
  if (share.first != 0) return;
  *tiles.state() = {};
  if (!tiles.in_slabs()) tiles.state()->closed = memory.shape.ranks;
}

// Where entries of an expert's rows count from (RecvEntry::row).
UCCLEP_FN uint32_t first_entry(const Tiles& tiles, uint32_t expert) {
  return tiles.in_slabs() ? 0 : tiles.memory.expert_base(0)[expert];
}

// Lane verb: the place of an arrived row among those of an expert: the next one, in a backward pass that of the forward
// dispatch before. The row's entries have not been written again.
constexpr uint32_t nowhere = ~0u;
UCCLEP_FN uint32_t take_place(const Tiles& tiles, bool backward, uint32_t source, uint32_t place, uint32_t expert) {
  const HandleMemory& memory = tiles.memory;
  const uint32_t next = fetch_add_relaxed<Scope::gpu>(tiles.taken() + expert, 1u);
  if (!backward) return next;
  const uint32_t count = memory.recv_count(source)[place];
  for (uint32_t i = 0; i < count && i < memory.shape.top_k; ++i) {
    const RecvEntry& entry = memory.recv_entries(source, place)[i];
    if (entry.expert == expert) return entry.row - first_entry(tiles, expert);
  }
  return nowhere;
}

// Lane verb: what a tile's word says, if nothing was said yet. One that is ready goes to the end of the queue.
UCCLEP_FN void set_tile(const Tiles& tiles, uint64_t tile, uint32_t what) {
  uint32_t nothing = 0;
  if (!compare_exchange<Scope::gpu>(tiles.ready() + tile, nothing, what) || what != tile_is_ready) return;
  const uint32_t place = fetch_add_relaxed<Scope::gpu>(&tiles.state()->queued, 1u);
  store_release<Scope::gpu>(tiles.queue() + place, static_cast<uint32_t>(tile) + 1);
}

// What a handle's words say of a row. scales: NULL where it has none.
struct TileRow {
  uint32_t source, token;
  float weight;
  const void *row, *scales;
};

// Lane verb: so many more rows of a tile are here.
UCCLEP_FN void count_rows(const Tiles& tiles, uint64_t tile, uint32_t rows) {
  const uint32_t here = fetch_add_acq_rel<Scope::gpu>(tiles.arrived() + tile, rows) + rows;
  if (here == tiles.rows_of_tile()) set_tile(tiles, tile, tile_is_ready);
}

// Lane verb: a row lies at a place of its expert's slab, with all that is known of it, and counts.
UCCLEP_FN void note_tile_row(const Tiles& tiles, uint32_t expert, uint32_t place, const TileRow& what) {
  const uint64_t row = tiles.row(expert, place);
  tiles.src_info()[row] = int64_t{what.source} << 32 | what.token;
  tiles.weights()[row] = what.weight;
  tiles.row_at()[row] = reinterpret_cast<uint64_t>(what.row);
  tiles.scales_at()[row] = reinterpret_cast<uint64_t>(what.scales);
  count_rows(tiles, row / tiles.rows_of_tile(), 1);
}

// A copy of an arrived row: whose it is, and where it lies in the tensors of the dispatch.
struct ArrivedCopy {
  uint32_t source, token, expert, place;
  float weight;
};

// Lane verb, when a copy is written: it is known, and counts.
UCCLEP_FN void note_copy(const Tiles& tiles, const DispatchOutput& out, bool weighted, const ArrivedCopy& copy) {
  const int64_t outer = tiles.in_slabs() ? copy.expert : 0;
  const auto inner = static_cast<int64_t>(tiles.in_slabs() ? copy.place : tiles.row(copy.expert, copy.place));
  if (static_cast<uint64_t>(inner) >= out.capacity) return;
  note_tile_row(tiles, copy.expert, copy.place,
                {copy.source, copy.token, weighted ? copy.weight : 1.0f, out.tokens.at(outer, inner),
                 out.scales.data ? out.scales.at(outer, inner) : nullptr});
}

// Lane verb: rows of an expert that are kept, when all are known. Rows at or past the capacity are not.
UCCLEP_FN uint32_t kept_rows(const Tiles& tiles, uint64_t capacity, uint32_t expert) {
  const auto first = static_cast<uint64_t>(tiles.first_row()[expert]);
  const uint64_t room = tiles.in_slabs() ? tiles.at().slab : first < capacity ? capacity - first : 0;
  const uint32_t rows = load_relaxed<Scope::gpu>(tiles.expected() + expert);
  return rows < room ? rows : static_cast<uint32_t>(room);
}

// Verb of those threads: no source will send more than `expected` says. Who stores how many rows an expert has stores
// it once, before it sets words of the expert's tiles.
UCCLEP_FN void close_tiles(const Tiles& tiles, uint64_t capacity, const TileShare& share) {
  const uint32_t size = tiles.rows_of_tile();
  for (uint64_t l = share.first; l < tiles.memory.shape.local_experts(); l += share.step) {
    const auto expert = static_cast<uint32_t>(l);
    const uint32_t kept = kept_rows(tiles, capacity, expert);
    store_relaxed<Scope::gpu>(tiles.final() + expert, kept);  // released by what sets a tile's word
    if (kept % size != 0) count_rows(tiles, tiles.row(expert, kept) / size, size - kept % size);
    for (uint64_t t = tiles.row(expert, kept + size - 1) / size;
         t < tiles.count() && tiles.experts()[t] == static_cast<int32_t>(expert); ++t) {
      set_tile(tiles, t, tile_is_none);
    }
  }
  for (uint64_t t = share.first; t < tiles.count(); t += share.step) {
    if (tiles.experts()[t] < 0) set_tile(tiles, t, tile_is_none);
  }
}

// Warp verb, of one warp, behind close_tiles: how many tiles will be ready.
UCCLEP_FN void announce_tiles(const Tiles& tiles, uint64_t capacity) {
  const uint32_t size = tiles.rows_of_tile();
  uint32_t all = 0;
  for (uint32_t l = lane_id(); l < tiles.memory.shape.local_experts(); l += wave_size) {
    all += (kept_rows(tiles, capacity, l) + size - 1) / size;
  }
  all = reduce_add(all);
  if (lane_id() == 0) store_release<Scope::gpu>(&tiles.state()->all, all + 1);
}

// Lane verb: the counts of one more source are in `expected`. True: of all.
UCCLEP_FN bool source_closed(const Tiles& tiles) {
  return fetch_add_acq_rel<Scope::gpu>(&tiles.state()->closed, 1u) + 1 == tiles.memory.shape.ranks;
}

// What a lane looks for: some of the rows of one source, each so many behind the other.
struct LaneRows {
  uint32_t source = 0, next = 0, step = 1, end = 0;
  bool ended = true, leads = false;  // leads: of all lanes of the grid that look for the source's rows

  // Sources that a warp looks at together, and how many such sets there are. Warps share out the sets, and in a set
  // lanes the sources, and lanes of a source, in all warps of the set, its rows. A set holds up no other one where
  // there is a warp for each.
  static UCCLEP_FN uint32_t sets(const Op& op) { return (op.ranks() + wave_size - 1) / wave_size; }
  // Lane verb: of the warp that is `warps.first` of `warps.step`; the end is not known yet.
  static UCCLEP_FN LaneRows of(const Op& op, const WarpShare& warps, uint32_t set) {
    const uint32_t all_sets = sets(op), first = set * wave_size, left = op.ranks() - first;
    const uint32_t sources = left < wave_size ? left : wave_size, lanes = wave_size / sources;
    const bool alone = warps.step < all_sets;
    const uint32_t of_set = alone ? 1 : (warps.step - set + all_sets - 1) / all_sets;
    const uint32_t warp = alone ? 0 : warps.first / all_sets, index = lane_id() / lanes;
    LaneRows rows;
    rows.ended = index >= sources;
    rows.leads = !rows.ended && lane_id() % lanes == 0 && warp == index % of_set;
    rows.source = op.rotated(first + (rows.ended ? 0 : index));
    rows.next = lane_id() % lanes * of_set + warp;
    rows.step = lanes * of_set;
    return rows;
  }
};

// Warp verb: takes what lanes find, until all have ended. look(op, args): lane verb, is there something to take;
// take(here): warp verb, takes some of what the lanes of these bits have found, and their bits away. False: it gives
// up.
template <class Args, class Look, class Take>
UCCLEP_FN bool take_as_they_come(const Args& args, const Op& op, Phase phase, const LaneRows& rows, Look&& look,
                                 Take&& take) {
  for (;;) {
    const Args& now = reload(args);
    const Op same = op.with(now.group);
    uint64_t here = 0;
    uint32_t peer = 0;
    const bool ok = wait_peer_warp(same, phase, peer, [&] {
      here = ballot(look(same, now));
      const uint64_t waiting = ballot(!rows.ended);
      if (here != 0 || waiting == 0) return true;
      peer = broadcast(rows.source, first_lane(waiting));
      return false;
    });
    if (!ok) return false;
    if (here == 0) return true;
    while (here != 0) {
      if (!take(here)) return false;
    }
  }
}

// Verb of the scope, where rows will not come: nobody waits for them.
template <class Coop = block>
UCCLEP_FN void give_up_tiles(const Tiles& tiles) {
  if (Coop::rank() == 0) store_release<Scope::gpu>(&tiles.state()->received, tiles_failed);
  for (uint64_t t = Coop::rank(); t < tiles.count(); t += Coop::size()) set_tile(tiles, t, tile_is_none);
}

// Verb of the scope, when all rows are counted: as many have come for each expert as the sources announced.
template <class Coop>
UCCLEP_FN bool totals_agree(const Op& op, const Tiles& tiles) {
  bool ok = true;
  for (uint32_t l = Coop::rank(); l < op.group.shape.local_experts(); l += Coop::size()) {
    const uint32_t came = load_relaxed<Scope::gpu>(tiles.taken() + l),
                   said = load_relaxed<Scope::gpu>(tiles.expected() + l);
    if (came == said) continue;
    ErrorRecord record = record_of(op, ucclEpRemoteError, Phase::rows, -1);
    record.expected = said;
    record.got = came;
    report_fatal(op.group.errors, op.group.abort_word, record);
    ok = false;
  }
  return !Coop::any(!ok);
}

// Block verb of each block that received, when all of its rows are counted. The last one sees whether as many rows came
// for each expert as the sources announced.
UCCLEP_FN bool check_totals(const Op& op, const Tiles& tiles) {
  sync_block();
  bool last = false;
  if (thread_id() == 0) last = fetch_add_acq_rel<Scope::gpu>(&tiles.state()->left, 1u) + 1 == grid_size();
  if (!sync_block_or(last)) return true;
  if (load_relaxed<Scope::gpu>(&tiles.state()->closed) != op.ranks()) {  // a source has other settings
    give_up_tiles(tiles);
    return true;
  }
  if (!totals_agree<block>(op, tiles)) return false;
  if (thread_id() == 0) store_relaxed<Scope::gpu>(&tiles.state()->received, tiles_received);
  return true;
}

// ---- Back: consumers make results of a tile's rows, where these lie in the tensor that combine reads, and count in
// its tile_done.

// Lane verb, of a warp that has written what there is to know of a row: it has arrived.
UCCLEP_FN void note_arrived(const HandleMemory& memory, uint32_t source, uint32_t place, uint64_t seq) {
  store_release<Scope::gpu>(memory.noted(source) + place, seq);
}

// A tile that a row waits for, or why there is none to name.
struct AwaitedTile {
  static constexpr uint32_t none = ~0u, not_arrived = none - 1;  // of that row all are done; it is not here
  uint32_t tile, done;                                           // done: as its word says

  UCCLEP_FN bool any() const { return tile != none; }
};

// Lane verb: of a row that this rank receives, the first tile with a copy of it that fewer than `target` consumers have
// done. Where there is none, the results of all copies may be read by this lane, and after a sync_warp by its warp.
UCCLEP_FN AwaitedTile awaited_tile(const Tiles& tiles, uint32_t target, uint32_t source, uint32_t place) {
  const HandleMemory& memory = tiles.memory;
  if (load_acquire<Scope::gpu>(memory.noted(source) + place) == 0) return {AwaitedTile::not_arrived, 0};
  const uint32_t copies = memory.recv_count(source)[place];
  const RecvEntry* const entries = memory.recv_entries(source, place);
  for (uint32_t i = 0; i < copies; ++i) {
    const uint32_t row = entries[i].row;
    if (row >= tiles.at().slab) continue;  // it got no place
    const uint64_t tile_row = entries[i].expert * tiles.at().slab + row;
    const auto tile = static_cast<uint32_t>(tile_row / tiles.rows_of_tile());
    const uint32_t done = load_acquire<Scope::system>(tiles.done() + tile);
    if (done < target) return {tile, done};
  }
  return {AwaitedTile::none, 0};
}

// All of a launch of one warp: the stream goes on when the blocks that receive have begun, so that no kernel behind it
// takes their place. A device that has no room for both goes on after a while.
UCCLEP_FN void await_tiles(const TileGateArgs& args) {
  if (thread_id() != 0) return;
  const Wait wait = begin_wait(block_patience_ns, args.abort_word);
  wait_until(wait, [&] { return load_relaxed<Scope::gpu>(args.resident) >= args.blocks; });
}

}  // namespace UCCLEP_SIMT_NAMESPACE
