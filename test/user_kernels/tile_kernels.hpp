// SPDX-License-Identifier: Apache-2.0
// A consumer of tiles: experts that work on a tile when its word says that it is there.
#pragma once
#include "initiated_kernels.hpp"
#include "ucclep/device.hpp"
#include "ucclep/device/tiles.hpp"

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

// The same of a kernel that joins: tiles in the order in which they are ready, or each by its name.
struct JoinedTilesArgs {
  ucclEpDeviceHandle handle;
  TileShapes shapes;
  TileConsumerArgs experts;
  uint32_t parts;     // of a tile; a part has every so manieth row
  uint32_t* handed;   // [tiles], 0: parts that were handed out
  uint32_t* failed;   // 0: scopes for which next() failed
  uint32_t in_order;  // tiles are asked for by name
};
// A kernel that does all of it, layer_tiles_SCOPE: some blocks serve, the others send, take tiles and send back.
struct TileLayerArgs {
  JoinedTilesArgs take;  // with handle and shapes; its experts' results are back_rows
  InitiatedDispatchArgs send;
  CombineRows out;
  int64_t* src_info;  // [L, C] as dispatch puts them out, as are the weights; NULL: not wanted
  float* topk_weights;
  char* scratch;     // [blocks * threads] results, each of a scope, which uses it again
  uint32_t by_done;  // results go to back_rows, and tiles are done
  uint32_t rounds;   // of the same
  uint32_t* held;    // NULL, or becomes 1 when all but the last token of the rank have left, and goes on at 2
  uint32_t never_closes;
  uint32_t shares = 1;  // warps that serve a source
};
// joined_tiles_SCOPE
inline constexpr const char* tile_scopes[] = {"thread", "lanes4", "warp", "block"};

}  // namespace ucclep::test
