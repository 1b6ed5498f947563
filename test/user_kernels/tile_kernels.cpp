// SPDX-License-Identifier: Apache-2.0
#include "tile_kernels.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(tile_consumer, ucclep::test::TileConsumerArgs) {
  const auto copy = [](char* to, const char* from, uint64_t bytes) {
    for (uint64_t i = 16 * lane_id(); i < bytes; i += 16 * wave_size) store16(to + i, load16(from + i));
  };
  for (auto turn = static_cast<int64_t>(block_id()); turn < args.tiles.tiles; turn += grid_size()) {
    const int64_t tile = args.backwards ? args.tiles.tiles - 1 - turn : turn;
    uint32_t word = 0;
    if (thread_id() == 0) {
      const Wait wait = begin_wait(args.limit_ns, args.late);
      const bool came = wait_until(wait, [&] {
        word = load_acquire<Scope::gpu>(args.tiles.tile_ready + tile);
        return word != 0;
      });
      if (!came) store_relaxed<Scope::gpu>(args.late, 1u);
    }
    if (!sync_block_or(word == 1)) continue;
    if (thread_id() == 0) fetch_add_acq_rel<Scope::gpu>(args.tiles.tile_done + tile, args.times - 1);
    const int32_t expert = args.tiles.tile_expert[tile];
    const int64_t first = tile * args.tile_rows - args.tiles.first_row[expert];
    // Before all sources have closed a tile that is ready is full.
    const auto final =
        static_cast<int32_t>(load_acquire<Scope::gpu>(reinterpret_cast<uint32_t*>(args.tiles.rows_final) + expert));
    const int64_t left = final < 0 ? args.tile_rows : final - first;
    for (int64_t i = warp_id(); i < left && i < args.tile_rows; i += block::warps()) {
      const int64_t row = tile * args.tile_rows + i, info = args.tiles.src_info[row];
      const uint64_t slot = static_cast<uint64_t>(expert) * args.slots +
                            static_cast<uint64_t>(info >> 32) * args.tokens + static_cast<uint64_t>(info & 0xffffffff);
      copy(args.seen + slot * args.row_bytes, reinterpret_cast<const char*>(args.tiles.row_at[row]), args.row_bytes);
      copy(args.results + static_cast<uint64_t>(row) * args.result_bytes, args.answers + slot * args.result_bytes,
           args.result_bytes);
    }
    sync_block();
    if (thread_id() == 0) fetch_add_acq_rel<Scope::gpu>(args.tiles.tile_done + tile, 1u);
  }
}

using test::JoinedTilesArgs;
using test::TileConsumerArgs;

// Verb of the scope: what the experts make of some rows of a tile.
template <class Coop>
UCCLEP_FN void answer_rows(const tiles::OpenTiles& op, const TileConsumerArgs& args, const tiles::Tile& tile,
                           uint32_t parts) {
  for (uint32_t i = tile.part; i < tile.rows; i += parts) {
    const tiles::Entry entry = tiles::entry(op, tile, i);
    const uint64_t slot = tile.expert * args.slots + uint64_t{entry.source} * args.tokens + entry.token,
                   row = tiles::row_index(op, tile, i);
    copy_vectors<Coop>(args.seen + slot * args.row_bytes, static_cast<const char*>(tiles::row(op, tile, i)),
                       args.row_bytes);
    copy_vectors<Coop>(args.results + row * args.result_bytes, args.answers + slot * args.result_bytes,
                       args.result_bytes);
  }
}

template <class Coop>
UCCLEP_FN void work_on(const tiles::OpenTiles& op, const JoinedTilesArgs& args, const tiles::Tile& tile, bool any) {
  const uint64_t number = any ? tiles::row_index(op, tile, 0) / args.experts.tile_rows : 0;
  if (any) answer_rows<Coop>(op, args.experts, tile, args.parts);
  Coop::sync();
  if (!any || Coop::rank() != 0) return;
  fetch_add_acq_rel<Scope::gpu>(args.handed + number, 1u);
  if (tile.part == 0) fetch_add_acq_rel<Scope::gpu>(args.experts.tiles.tile_done + number, 1u);
}

template <class Coop>
UCCLEP_FN void take_in_order(const tiles::OpenTiles& op, const JoinedTilesArgs& args) {
  const uint32_t all = block_size() / Coop::size() * grid_size(),
                 mine = thread_id() / Coop::size() * grid_size() + block_id();
  const auto tiles = static_cast<uint32_t>(args.experts.tiles.tiles);
  const uint32_t of_expert = tiles / op.memory().shape.local_experts();
  for (uint32_t first = 0; first < tiles; first += all) {
    const uint32_t number = first + mine;
    tiles::Tile tile{number / of_expert, number % of_expert, 0, 0};
    if (!tiles::wait(Coop{}, op, tile.expert, tile.index, tile.rows) && Coop::rank() == 0)
      fetch_add_relaxed<Scope::gpu>(args.failed, 1u);
    work_on<Coop>(op, args, tile, tile.rows != 0);
  }
}

template <class Coop>
UCCLEP_FN void take_tiles(const JoinedTilesArgs& args) {
  const auto op = tiles::join(args.handle, args.shapes);
  if (args.in_order != 0) return take_in_order<Coop>(op, args);
  for (;;) {
    tiles::Tile tile{};
    const tiles::Next next = tiles::next(Coop{}, op, tile, args.parts);
    work_on<Coop>(op, args, tile, next == tiles::Next::tile);
    if (next == tiles::Next::failed && Coop::rank() == 0) fetch_add_relaxed<Scope::gpu>(args.failed, 1u);
    if (!any_together<Coop>(next == tiles::Next::tile)) return;
  }
}

UCCLEP_KERNEL(joined_tiles_thread, JoinedTilesArgs) {
  take_tiles<thread>(args);
}
UCCLEP_KERNEL(joined_tiles_lanes4, JoinedTilesArgs) {
  take_tiles<lanes<4>>(args);
}
UCCLEP_KERNEL(joined_tiles_warp, JoinedTilesArgs) {
  take_tiles<warp>(args);
}
UCCLEP_KERNEL(joined_tiles_block, JoinedTilesArgs) {
  take_tiles<block>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
