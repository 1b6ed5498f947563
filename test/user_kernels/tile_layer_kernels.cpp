// SPDX-License-Identifier: Apache-2.0
// Tiles that one kernel sends, serves, takes and sends back.
#include "tile_kernels.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::InitiatedDispatchArgs;
using test::TileConsumerArgs;
using test::TileLayerArgs;

// Blocks whose warps serve the sources; the others work by scopes.
template <class Coop>
struct Workers {
  uint32_t serving, scopes, mine;

  explicit UCCLEP_FN Workers(uint32_t servers) {
    const uint32_t warps = block::warps(), of_block = block_size() / Coop::size();
    serving = (servers + warps - 1) / warps;
    scopes = (grid_size() - serving) * of_block;
    mine = thread_id() / Coop::size() * (grid_size() - serving) + block_id() - serving;
  }
  UCCLEP_FN bool here() const { return block_id() >= serving; }
};

// Verb of the scopes that work: the rank's tokens, in another order for every seed.
template <class Coop>
UCCLEP_FN void send_tiles(const tiles::OpenTiles& op, const TileLayerArgs& layer, const Workers<Coop>& workers) {
  const InitiatedDispatchArgs& args = layer.send;
  for (uint32_t first = 0; first < args.tokens; first += workers.scopes) {
    const uint32_t i = first + (workers.mine + args.seed) % workers.scopes;
    const bool any = i < args.tokens;
    const uint32_t row = any ? (i + args.seed) % args.tokens : 0;
    if (layer.held != nullptr && any && row + 1 == args.tokens && Coop::rank() == 0) {
      store_release<Scope::system>(layer.held, 1u);
      while (load_acquire<Scope::system>(layer.held) != 2) pause();
    }
    tiles::send(Coop{}, op, any ? row : ~0u, args.rows.at(row), args.scales.at(row),
                reinterpret_cast<const int64_t*>(args.experts.at(row)),
                reinterpret_cast<const float*>(args.weights.at(row)));
  }
  if (layer.never_closes == 0) tiles::close(Coop{}, op);
}

// Verb of the scope: a row that was seen, and where dispatch says that it comes from.
template <class Coop>
UCCLEP_FN uint64_t see_row(const tiles::OpenTiles& op, const TileLayerArgs& layer, const tiles::Tile& tile,
                           uint32_t i) {
  const TileConsumerArgs& args = layer.take.experts;
  const tiles::Entry entry = tiles::entry(op, tile, i);
  const uint64_t slot = tile.expert * args.slots + uint64_t{entry.source} * args.tokens + entry.token,
                 row = tiles::row_index(op, tile, i);
  copy_vectors<Coop>(args.seen + slot * args.row_bytes, static_cast<const char*>(tiles::row(op, tile, i)),
                     args.row_bytes);
  if (Coop::rank() == 0 && layer.src_info) layer.src_info[row] = int64_t{entry.source} << 32 | entry.token;
  if (Coop::rank() == 0 && layer.topk_weights) layer.topk_weights[row] = entry.weight;
  return slot;
}

// Verb of the scope: a part of a tile, or none. All groups of a warp take equally many turns.
template <class Coop>
UCCLEP_FN void work_on(const tiles::OpenTiles& op, const TileLayerArgs& layer, const tiles::Tile& tile, bool any) {
  const TileConsumerArgs& args = layer.take.experts;
  for (uint32_t first = 0; first < args.tile_rows; first += layer.take.parts) {
    const uint32_t i = first + tile.part;
    const bool row = any && i < tile.rows;
    const uint64_t slot = row ? see_row<Coop>(op, layer, tile, i) : 0;
    const char* const answer = args.answers + slot * args.result_bytes;
    if (layer.by_done == 0) {
      const uint32_t scope = (block_id() * block_size() + thread_id()) / Coop::size();
      char* const result = layer.scratch + scope * args.result_bytes;
      if (row) copy_vectors<Coop>(result, answer, args.result_bytes);
      Coop::sync();
      tiles::send_back(Coop{}, op, tile, i, result);
      Coop::sync();
    } else if (row) {
      copy_vectors<Coop>(args.results + tiles::row_index(op, tile, i) * args.result_bytes, answer, args.result_bytes);
    }
  }
  Coop::sync();
  if (!any || Coop::rank() != 0) return;
  fetch_add_relaxed<Scope::gpu>(layer.take.handed + tiles::row_index(op, tile, 0) / args.tile_rows, 1u);
  if (layer.by_done != 0) tiles::done(thread{}, op, tile);
}

template <class Coop>
UCCLEP_FN void take_layer(const tiles::OpenTiles& op, const TileLayerArgs& layer) {
  for (;;) {
    tiles::Tile tile{};
    const tiles::Next next = tiles::next(Coop{}, op, tile, layer.take.parts);
    work_on<Coop>(op, layer, tile, next == tiles::Next::tile);
    if (next == tiles::Next::failed && Coop::rank() == 0) fetch_add_relaxed<Scope::gpu>(layer.take.failed, 1u);
    if (!any_together<Coop>(next == tiles::Next::tile)) return;
  }
}

template <class Coop>
UCCLEP_FN void take_results(const tiles::OpenTiles& op, const TileLayerArgs& layer, const Workers<Coop>& workers) {
  if (!workers.here()) return;
  const uint32_t tokens = layer.send.tokens;
  if (tokens == 0) tiles::results(Coop{}, op, layer.out, 0, 0);
  for (uint32_t first = 0; first < tokens; first += 2 * workers.scopes) {
    const uint32_t begin = first + 2 * workers.mine, end = begin + 2;
    tiles::results(Coop{}, op, layer.out, begin < tokens ? begin : tokens, end < tokens ? end : tokens);
  }
}

template <class Coop>
UCCLEP_FN bool exchange_tiles(const TileLayerArgs& layer) {
  const uint32_t ranks = layer.take.handle.group.shape.ranks, servers = ranks * layer.shares;
  const uint32_t warp_of_grid = block_id() * block::warps() + warp_id();
  const Workers<Coop> workers(servers);
  TileShapes shapes = layer.take.shapes;
  shapes.closers = workers.scopes;
  const auto op = tiles::begin(layer.take.handle, shapes);
  if (workers.here()) {
    send_tiles<Coop>(op, layer, workers);
    sync_warp();  // no thread asks for tiles before all lanes of its warp have closed
    take_layer<Coop>(op, layer);
  } else if (warp_of_grid < servers) {
    tiles::serve(warp{}, op, warp_of_grid % ranks, warp_of_grid / ranks, layer.shares);
  }
  if (shapes.back.hidden == 0) return tiles::await_end(block{}, op);
  tiles::close_back(block{}, op);
  take_results<Coop>(op, layer, workers);
  return tiles::await_end(block{}, op);
}

template <class Coop>
UCCLEP_FN void run_layers(const TileLayerArgs& args) {
  for (uint32_t round = 0; round < args.rounds; ++round) {
    if (!exchange_tiles<Coop>(args)) return;
  }
}

UCCLEP_KERNEL(layer_tiles_thread, TileLayerArgs) {
  run_layers<thread>(args);
}
UCCLEP_KERNEL(layer_tiles_lanes4, TileLayerArgs) {
  run_layers<lanes<4>>(args);
}
UCCLEP_KERNEL(layer_tiles_warp, TileLayerArgs) {
  run_layers<warp>(args);
}
UCCLEP_KERNEL(layer_tiles_block, TileLayerArgs) {
  run_layers<block>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
