// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernel simt_check: it tries every verb of simt.hpp and counts wrong results. It is the first thing
// to run on a new target.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ucclep {

// What is counted, one word each.
enum class SimtCheck : unsigned {
  warp_values,
  words_4,
  words_8,
  block,
  grid,
  publish,
  packet,
  bulk,
  numeric,
  waits,
  count
};

struct SimtCheckArgs {
  uint32_t* wrong;              // [SimtCheck::count], zero before
  uint32_t* done;               // the number of threads that came to the end, zero before
  uint64_t* words;              // [4 + blocks], zero before
  void* packets;                // [blocks] of 16 bytes, zero before
  const unsigned char* source;  // [warps of the grid][row_bytes]; byte i of row r is (7 r + i) mod 251
  unsigned char* copies;        // [2][warps of the grid][row_bytes]
  void* grid_barrier;           // 8 bytes, zero before
  uint32_t row_bytes;           // that each warp copies, twice; a multiple of 16
  uint64_t epoch;               // not 0, another one for each launch
  uint64_t limit_ns;
  const uint32_t* abort_word;
};

// Dynamic shared memory of a block with that many warps: barriers and scratch, then a row per warp.
constexpr size_t simt_check_shared_bytes(unsigned warps, unsigned row_bytes) {
  return 256 + size_t{warps} * row_bytes;
}

}  // namespace ucclep
