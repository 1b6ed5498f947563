// SPDX-License-Identifier: Apache-2.0
// A consumer of tiles: experts that work on a tile when its word says that it is there.
#pragma once
#include "ucclep/device.hpp"

namespace ucclep::test {

// Rows of seen and answers: by local expert, source and token.
struct TileConsumerArgs {
  ucclEpTiles_t tiles;
  uint32_t tile_rows, tokens;        // tokens: of a rank at most
  uint64_t row_bytes, result_bytes;  // multiples of 16
  char* seen;                        // gets rows as they came
  const char* answers;               // what experts make of them
  char* results;                     // where combine finds it: as dispatch's rows lie
  uint64_t slots;                    // rows of an expert in seen and answers
  uint32_t* late;                    // device memory, 0: gets 1 when a tile did not come in time
  uint64_t limit_ns;
  uint32_t times;  // how often a tile is counted as done: but for the last before it has results
  bool backwards;  // from the last tile on
};

}  // namespace ucclep::test
