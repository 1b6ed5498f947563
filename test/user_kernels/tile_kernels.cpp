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

}  // namespace UCCLEP_SIMT_NAMESPACE
