// SPDX-License-Identifier: Apache-2.0
// What cases of handles of TILES share.
#pragma once
#include <algorithm>

#include "conformance/exchange.hpp"
#include "conformance/tile_words.hpp"

namespace ucclep::test {

inline Scenario in_tiles(Scenario scenario, int tile_rows = 16) {
  scenario.layout = Layout::ll_expert_major;
  scenario.tile_rows = tile_rows;
  return scenario;
}

// In lines where these arrive whole, and in bulk.
inline constexpr int64_t hidden_in_lines = 72, hidden_in_bulk = 1024;

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
  require(
      std::ranges::count(TileWords(exchange.comm(), handle).done, 0u) == TileWords(exchange.comm(), handle).at.tiles,
      "tile_done does not begin at 0");
  exchange.check_counters();
  exchange.check_dispatch();
  exchange.combine(handle, stream);
  stream.synchronize();
  exchange.check_combine();
}

}  // namespace ucclep::test
