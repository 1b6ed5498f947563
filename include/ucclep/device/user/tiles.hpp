// SPDX-License-Identifier: Apache-2.0
// Tiles as a user's kernel takes them (device/tiles.hpp). Nobody waits behind a tile that is not ready while another
// one is: tiles stand in a queue when they are ready, and who asks takes the next place of it.
//
// clang-format off
// | who releases                               | who acquires                 | what is ordered                             |
// |--------------------------------------------|------------------------------|---------------------------------------------|
// | set_tile: the queue, store_release (gpu)   | next: load_acquire, then     | a tile's rows, scales and index, before the |
// | set_tile: tile_ready, compare_exchange     | wait:   acquire_then_bulk    |   scope reads them, in bulk as well         |
// | close_tiles, give_up_tiles: store_release  | next: load_acquire           | nothing: the words alone                    |
// clang-format on
// A scope of less than a warp issues no bulk copies, and needs no fence for them.
//
// Floor: an atomic on one word, and a poll of another.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/tiles.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace ucclep {

// What a kernel exchanges: tiles::Shapes. Rows lie as in the layout TILES, [L, C, hidden], 16-byte aligned.
struct TileShapes {
  RowShape out;               // of rows that dispatch delivers
  RowShape back{};            // of rows that combine sums; hidden 0: none
  uint32_t closers = 0;       // scopes of the grid that call close()
  void* rows = nullptr;       // gets received rows, where the kernel serves them
  void* scales = nullptr;     // gets their scales, [L, C, scale_bytes]
  void* back_rows = nullptr;  // where results wait until all of their token are made
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {
namespace tiles {

using Shapes = TileShapes;

// A tile that is ready, or a part of it.
struct Tile {
  uint32_t expert;  // local
  uint32_t index;   // which tile of the expert it is
  uint32_t rows;    // of it: all but an expert's last have tile_rows
  uint32_t part;    // below `parts` of next()
};

// A row's origin, and the weight of the selection that it is a copy for (1 where the dispatch has none).
struct Entry {
  uint32_t source, token;
  float weight;
};

// What came of asking for a tile. end: all have been handed out. failed: the operation has.
enum class Next { tile, end, failed };

// A dispatch of tiles and its combine, as every thread of the grid holds them.
struct OpenTiles {
  ll::OpenCombine back;  // with its dispatch
  Shapes shapes;
  bool joined;  // the dispatch is one of the host's, and so is a combine

  UCCLEP_FN bool ok() const { return back.dispatch.ok; }
  UCCLEP_FN HandleMemory memory() const { return back.dispatch.memory(); }
  // The operations in records. Groups whose handles have tiles have no masks, and one domain.
  UCCLEP_FN Op dispatch_op() const { return in_domain(back.dispatch.op()); }
  UCCLEP_FN Op combine_op() const { return in_domain(back.op()); }

 private:
  static UCCLEP_FN Op in_domain(const Op& op) {
    return {op.group, op.kind, op.name, op.seq, op.slot, op.round, MayMeet{false, false, true}};
  }
};

// Before a kernel has begun a combine, or where it begins none.
UCCLEP_FN ll::OpenCombine no_combine(const ll::OpenDispatch& dispatch, const Shapes& shapes) {
  return {{dispatch.handle, shapes.back, Settings{}, 0, 0, false}, true, dispatch};
}

// Answers of a scope's first member instead of a number.
constexpr uint32_t no_more = ~0u, gave_up = ~0u - 1;

// Lane verb: waits for found(), at most as long as those who receive tiles may take to find that none will come.
template <class Found>
UCCLEP_FN bool await_tile(const OpenTiles& open, Found&& found) {
  const Op op = open.dispatch_op();
  const Wait wait = begin_wait_for_blocks(op, op.group.abort_word);
  if (wait_until(wait, found)) return true;
  report_blocks(op, wait);
  return false;
}

// Lane verb: the next place of the queue, when the tile there is known.
UCCLEP_FN uint32_t take_place(const OpenTiles& open, uint32_t parts) {
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  TileState* const state = tiles.state();
  store_relaxed<Scope::gpu>(&state->parts, parts);
  const uint32_t ticket = fetch_add_relaxed<Scope::gpu>(&state->asked, 1u), place = ticket / parts;
  uint32_t answer = ticket;
  const bool known = await_tile(open, [&] {
    if (place < tiles.count() && load_acquire<Scope::gpu>(tiles.queue() + place) != 0) return true;
    const uint32_t all = load_acquire<Scope::gpu>(&state->all);
    if (load_acquire<Scope::gpu>(&state->received) == tiles_failed) {
      answer = gave_up;
    } else if (all != 0 && place >= all - 1) {
      answer = no_more;
    } else {
      return false;
    }
    return true;
  });
  return known ? answer : gave_up;
}

// Verb of the scope, all groups of a warp together, after its first member has acquired what it reads.
template <class Coop>
UCCLEP_FN void see_tile() {
  Coop::sync();
  if constexpr (whole_warps<Coop>) acquire_then_bulk();
}

// Lane verb: rows of a tile that is ready. Before all sources have closed it is full.
UCCLEP_FN uint32_t rows_of(const Tiles& tiles, uint32_t expert, uint32_t index) {
  const uint32_t size = tiles.rows_of_tile(), final = load_relaxed<Scope::gpu>(tiles.final() + expert);
  const uint32_t left = final - index * size;
  return final != not_closed && left < size ? left : size;
}

// Verb of the scope: a tile that is ready, each part of each tile to one scope of all kernels that ask; waits for one,
// at most twice the group's timeout and a second. parts: 1 or more, in all calls the same. lanes<N>: all groups of a
// warp call it together, and wait for the tiles of all of them.
template <class Coop>
UCCLEP_FN Next next(Coop, const OpenTiles& open, Tile& tile, uint32_t parts = 1) {
  if (!open.ok()) return Next::failed;
  const uint32_t ticket = Coop::first(Coop::rank() == 0 ? take_place(open, parts) : 0);
  see_tile<Coop>();
  if (ticket == no_more) return Next::end;
  if (ticket == gave_up) return Next::failed;
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  const uint32_t number = load_relaxed<Scope::gpu>(tiles.queue() + ticket / parts) - 1;
  const auto expert = static_cast<uint32_t>(tiles.experts()[number]);
  tile = {expert, number - tiles.tile(expert, 0), 0, ticket % parts};
  tile.rows = rows_of(tiles, tile.expert, tile.index);
  return Next::tile;
}

// Verb of the scope: waits, at most as long as next(), for a tile by name. rows: of it; 0: there is no such tile. It
// may be asked for any number of times, and next() hands it out all the same. lanes<N>: all groups of a warp call it
// together. False: the operation has failed.
template <class Coop>
UCCLEP_FN bool wait(Coop, const OpenTiles& open, uint32_t expert, uint32_t index, uint32_t& rows) {
  rows = 0;
  if (!open.ok()) return false;
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  const bool exists = expert < memory.shape.local_experts() && index < tiles.count() - tiles.tile(expert, 0) &&
                      tiles.experts()[tiles.tile(expert, index)] == static_cast<int32_t>(expert);
  uint32_t word = tile_is_none;
  if (exists && Coop::rank() == 0) {
    const uint32_t* const ready = tiles.ready() + tiles.tile(expert, index);
    const bool known = await_tile(open, [&] { return (word = load_acquire<Scope::gpu>(ready)) != 0; });
    if (!known || (word == tile_is_none && load_acquire<Scope::gpu>(&tiles.state()->received) == tiles_failed))
      word = gave_up;
  }
  word = Coop::first(word);
  see_tile<Coop>();
  if (word == gave_up) return false;
  if (word == tile_is_ready) rows = rows_of(tiles, expert, index);
  return true;
}

// Lane verbs, of a tile that was handed out, i < tile.rows: the number of its i-th row, counted over all experts; the
// row's address; its scales, NULL where it has none; whose it is.
UCCLEP_FN uint64_t row_index(const OpenTiles& open, const Tile& tile, uint32_t i) {
  const HandleMemory memory = open.memory();
  const Tiles tiles{memory};
  return tiles.row(tile.expert, tile.index * tiles.rows_of_tile() + i);
}
UCCLEP_FN const void* row(const OpenTiles& open, const Tile& tile, uint32_t i) {
  const HandleMemory memory = open.memory();
  return reinterpret_cast<const void*>(Tiles{memory}.row_at()[row_index(open, tile, i)]);
}
UCCLEP_FN const void* scales(const OpenTiles& open, const Tile& tile, uint32_t i) {
  const HandleMemory memory = open.memory();
  return reinterpret_cast<const void*>(Tiles{memory}.scales_at()[row_index(open, tile, i)]);
}
UCCLEP_FN Entry entry(const OpenTiles& open, const Tile& tile, uint32_t i) {
  const HandleMemory memory = open.memory();
  const uint64_t index = row_index(open, tile, i);
  const auto info = static_cast<uint64_t>(Tiles{memory}.src_info()[index]);
  return {static_cast<uint32_t>(info >> 32), static_cast<uint32_t>(info), Tiles{memory}.weights()[index]};
}

}  // namespace tiles
}  // namespace UCCLEP_SIMT_NAMESPACE
