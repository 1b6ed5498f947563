// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels that run rounds.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ceiling/kernels/arguments.hpp"
#include "ucclep/device.hpp"
#include "ucclep/device/whole_operations.hpp"

namespace ucclep {

// What a rank sends in a round: [tokens][hidden], [tokens][K], [tokens][K].
struct RoundInput {
  const char* tokens;
  const int64_t* experts;
  const float* weights;
};

// Rounds of dispatch and combine.
struct RoundsArgs {
  ucclEpDeviceHandle handle;
  RowShape shape;
  RoundInput inputs[2];  // the last round takes the first, the one before it the second, and so on
  DispatchRows rows;     // what is received
  char* results;         // [tokens][hidden]
  int64_t* counts;       // [zones] rows received; HT: as ucclEpHandleUpdate has counted them
  GridBarrier* barrier;
  uint32_t rounds, tokens;
  uint32_t zones;      // experts of this rank; HT FLAT: ranks
  uint32_t zone_rows;  // LL: rows of a slab. HT: of the whole output
  bool counted;        // only rows that there are, else all
};

// Rounds of whole operations.
struct WholeRoundsArgs {
  ucclEpDeviceDispatch dispatch[2];  // as RoundsArgs::inputs
  ucclEpDeviceCombine combine[2];
  uint32_t rounds;
};

// Rounds of nothing but the rows: there, and back from what `there` put out.
struct BareRoundsArgs {
  CeilingCopyArgs there, back;
  GridBarrier* barrier;
};

inline constexpr const char* rounds_kernels[] = {"rounds_ll_grid", "rounds_ll_grid_lines", "rounds_ll_block",
                                                 "rounds_ll_warp", "rounds_ht_grid",       "rounds_ht_block",
                                                 "rounds_ht_warp", "rounds_bare"};

}  // namespace ucclep
