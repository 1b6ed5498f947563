// SPDX-License-Identifier: Apache-2.0
// Tiles: received rows lie dense in their expert's slab, in the order in which they arrived, and each run of tile_rows
// of them has a word that says when it is there (ucclEpTiles_t). Who receives a row gives it the next place, writes it
// and counts it; who completes a tile says so. The counts of the headers tell how many rows an expert gets. When those
// of all sources are known, the rows that its last tile will never get are counted as if they were there. On the way
// back a row's partial sum may leave when the tiles of all its copies are done (awaited_tile).
//
// clang-format off
// | who releases                                   | who acquires                        | what is ordered                |
// |------------------------------------------------|-------------------------------------|--------------------------------|
// | open_tiles: the end of the send phase          | what the stream has after it        | all words as they begin        |
// | count_rows: fetch_add_acq_rel of arrived (gpu) | the one that completes the tile: the| a row, its scales and its index|
// |   by a lane that has seen what its warp wrote  |   same                              |   before its tile's word       |
// |   (sync_warp, bulk_wait_written)               |                                     |                                |
// | close_tiles: the same, after rows_final        | the same                            | rows_final before the word of  |
// |                                                |                                     |   the last tile                |
// | set_tile: compare_exchange of tile_ready (gpu) | consumers: load_acquire (gpu), for  | all of that before what they   |
// |                                                |   bulk copies a fence of the proxy  |   read                         |
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
  UCCLEP_FN uint32_t of_expert() const { return static_cast<uint32_t>(at().slab) / rows_of_tile(); }
  UCCLEP_FN uint64_t row(uint32_t expert, uint32_t place) const { return expert * at().slab + place; }

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
  UCCLEP_FN TileState* state() const { return memory.at<TileState>(at().state); }
};
constexpr uint32_t not_closed = ~0u;  // rows_final: -1; rows of a source whose header has not been read

// Grid verb, in the send phase of a dispatch, whatever becomes of it.
UCCLEP_FN void open_tiles(const HandleMemory& memory) {
  const Tiles tiles{memory};
  const uint64_t first = uint64_t{block_id()} * block_size() + thread_id(), step = uint64_t{grid_size()} * block_size();
  const uint32_t of_expert = tiles.of_expert();
  for (uint64_t t = first; t < tiles.count(); t += step) {
    tiles.ready()[t] = tiles.done()[t] = tiles.arrived()[t] = 0;
    tiles.experts()[t] = static_cast<int32_t>(static_cast<uint32_t>(t) / of_expert);
  }
  for (uint64_t l = first; l < memory.shape.local_experts(); l += step) {
    tiles.final()[l] = not_closed;
    tiles.taken()[l] = tiles.expected()[l] = 0;
    tiles.first_row()[l] = static_cast<int64_t>(tiles.row(static_cast<uint32_t>(l), 0));
  }
  for (uint64_t r = first; r < memory.shape.ranks; r += step) tiles.from()[r] = not_closed;
  const uint64_t rows = uint64_t{memory.shape.ranks} * memory.handle.tokens;
  for (uint64_t i = first; i < rows; i += step) memory.noted(0)[i] = 0;
  if (first == 0) *tiles.state() = {};
}

// Lane verb: what a tile's word says, if nothing was said yet.
UCCLEP_FN void set_tile(const Tiles& tiles, uint64_t tile, uint32_t what) {
  uint32_t nothing = 0;
  compare_exchange<Scope::gpu>(tiles.ready() + tile, nothing, what);
}

// Lane verb: so many more rows of a tile are here.
UCCLEP_FN void count_rows(const Tiles& tiles, uint64_t tile, uint32_t rows) {
  const uint32_t here = fetch_add_acq_rel<Scope::gpu>(tiles.arrived() + tile, rows) + rows;
  if (here == tiles.rows_of_tile()) set_tile(tiles, tile, tile_is_ready);
}

// Warp verb: no source will send more than `expected` says.
UCCLEP_FN void close_tiles(const Tiles& tiles) {
  const uint32_t local = tiles.memory.shape.local_experts(), of_expert = tiles.of_expert(), size = tiles.rows_of_tile();
  for (uint32_t l = lane_id(); l < local; l += wave_size) {
    const uint32_t rows = load_relaxed<Scope::gpu>(tiles.expected() + l);
    store_release<Scope::gpu>(tiles.final() + l, rows);
    if (rows % size != 0) count_rows(tiles, uint64_t{l} * of_expert + rows / size, size - rows % size);
  }
  sync_warp();
  for (uint32_t t = lane_id(); t < tiles.count(); t += wave_size) {
    const uint32_t rows = load_relaxed<Scope::gpu>(tiles.final() + t / of_expert);
    if (uint64_t{t % of_expert} * size >= rows) set_tile(tiles, t, tile_is_none);
  }
}

// Lane verb: the counts of one more source are in `expected`. True: of all.
UCCLEP_FN bool source_closed(const Tiles& tiles) {
  return fetch_add_acq_rel<Scope::gpu>(&tiles.state()->closed, 1u) + 1 == tiles.memory.shape.ranks;
}

// Block verb, where rows will not come: nobody waits for them.
UCCLEP_FN void give_up_tiles(const Tiles& tiles) {
  for (uint64_t t = thread_id(); t < tiles.count(); t += block_size()) set_tile(tiles, t, tile_is_none);
  if (thread_id() == 0) store_relaxed<Scope::gpu>(&tiles.state()->received, tiles_failed);
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
  bool ok = true;
  for (uint32_t l = thread_id(); l < op.group.shape.local_experts(); l += block_size()) {
    const uint32_t came = load_relaxed<Scope::gpu>(tiles.taken() + l),
                   said = load_relaxed<Scope::gpu>(tiles.expected() + l);
    if (came == said) continue;
    ErrorRecord record = record_of(op, ucclEpRemoteError, Phase::rows, -1);
    record.expected = said;
    record.got = came;
    report_fatal(op.group.errors, op.group.abort_word, record);
    ok = false;
  }
  if (!every_thread(ok)) return false;
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
    const uint32_t tile = entries[i].expert * tiles.of_expert() + row / tiles.rows_of_tile();
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
