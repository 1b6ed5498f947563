// SPDX-License-Identifier: Apache-2.0
// What cases of handles of TILES share.
#pragma once
#include <algorithm>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/tile_words.hpp"

namespace ucclep::test {

inline Scenario in_tiles(Scenario scenario, int tile_rows = 16) {
  scenario.layout = Layout::ll_expert_major;
  scenario.tile_rows = tile_rows;
  return scenario;
}

inline Scenario in_ht_tiles(Scenario scenario, int tile_rows = 16) {
  scenario.layout = Layout::ht_expert_major;
  scenario.tile_rows = tile_rows;
  scenario.alignment = tile_rows;
  return scenario;
}

// The scenario in both modes.
inline std::vector<Scenario> in_both_modes(const Scenario& scenario) {
  return {in_tiles(scenario, scenario.tile_rows), in_ht_tiles(scenario, scenario.tile_rows)};
}

// In lines where these arrive whole, and in bulk.
inline constexpr int64_t hidden_in_lines = 72, hidden_in_bulk = 1024;

inline ucclEpTiles_t tiles_of(ucclEpHandle_t handle) {
  ucclEpTiles_t tiles = UCCLEP_TILES_INIT;
  ok(ucclEpHandleGetTiles(handle, &tiles), "ucclEpHandleGetTiles");
  return tiles;
}

// While the host device writes them, or when its communicator takes no more calls: how many of its tiles say so, of all
// experts but one.
inline int64_t count_now(const ucclEpTiles_t& tiles, uint32_t word, int32_t except = -1) {
  int64_t count = 0;
  for (int64_t t = 0; t < tiles.tiles; ++t) {
    if (except >= 0 && tiles.tile_expert[t] == except) continue;
    count += __atomic_load_n(tiles.tile_ready + t, __ATOMIC_ACQUIRE) == word;
  }
  return count;
}

inline void complete_tiles(ucclEpHandle_t handle, ucclEpStream_t stream) {
  ok(ucclEpComplete(handle, stream), "ucclEpComplete");
}

inline void begin_tiles(Exchange& exchange, ucclEpHandle_t handle, ucclEpStream_t stream) {
  exchange.dispatch_config.send_only = 1;
  if (!exchange.scenario().carried) exchange.update(handle, stream);
  exchange.dispatch(handle, stream);
}

inline void check_tiles_and_combine(Exchange& exchange, ucclEpHandle_t handle, Stream& stream) {
  stream.synchronize();
  exchange.take_places(handle);
  const TileWords words(exchange.comm(), handle, exchange.scenario());
  require(std::ranges::count(words.done, 0u) == words.at.tiles, "tile_done does not begin at 0");
  exchange.check_counters();
  exchange.check_dispatch();
  exchange.combine(handle, stream);
  stream.synchronize();
  exchange.check_combine();
}

// Rows that are received on the library's stream.
inline void tiles_in_phases(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream,
                            const Scenario& scenario, uint64_t seed) {
  Exchange exchange(rank, comm, scenario, seed);
  begin_tiles(exchange, handle, stream);
  complete_tiles(handle, stream);
  check_tiles_and_combine(exchange, handle, stream);
}

inline void run_tiles(const std::vector<Scenario>& scenarios, int rounds = 2) {
  run_each(
      scenarios,
      [](const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream, const Scenario& scenario,
         uint64_t seed) {
        round_trip(rank, comm, handle, stream, scenario, seed);
        tiles_in_phases(rank, comm, handle, stream, scenario, seed + 100);
      },
      rounds);
}

}  // namespace ucclep::test
