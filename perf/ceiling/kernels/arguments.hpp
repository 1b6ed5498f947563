// SPDX-License-Identifier: Apache-2.0
// Arguments of the copy kernels. All metadata is free: the host has computed every place beforehand.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"

namespace ucclep {

constexpr unsigned ceiling_max_ranks = 16;
constexpr unsigned ceiling_flag_stride = 128;  // no two flags share a cache line

// What bounds every wait.
struct CeilingLimit {
  uint64_t ns;
  const uint32_t* abort_word;
  uint32_t* late;  // counts waits that were given up
};

// Signals between the ranks: rank r's flags are [ranks], each written by one peer.
struct CeilingFlagArgs {
  uint32_t ranks, rank;
  unsigned char* flags[ceiling_max_ranks];
  uint64_t epoch;     // above all earlier ones
  uint64_t delay_ns;  // ceiling_meet: spent before the ranks meet
  uint32_t rounds;    // ceiling_flag_*: how often the flag goes there and back
  CeilingLimit limit;
};

// What arrives of 128 bf16 elements that are cast on their way: fp8, and an fp32 scale.
constexpr uint32_t ceiling_group_bytes = 128 + sizeof(float);

// Rows of `row_bytes`, as they arrive (a multiple of 16; of ceiling_group_bytes if they are cast). Round r uses epoch +
// r, the landing at (first_landing + r) % landings, and the input at (first_input + r) % inputs.
struct CeilingCopyArgs {
  uint32_t ranks, rank;
  uint32_t tokens;    // of this rank
  uint32_t received;  // rows that this rank gets in a dispatch
  uint32_t row_bytes;
  uint32_t rounds;
  uint32_t inputs, first_input;
  uint32_t landings, first_landing;
  uint64_t input_stride;                      // bytes from one input to the next, here and at the peers
  uint64_t landing_stride;                    // the same of landings
  const unsigned char* input;                 // rows of this rank
  unsigned char* output;                      // rows
  unsigned char* windows[ceiling_max_ranks];  // of all ranks: outputs (push), inputs (pull) or landings (lines)
  const int32_t* places;                      // [tokens][ranks]: row of the token at that rank, -1: none
  const int32_t* origins;                     // [received]: rank * tokens + token that the row belongs to
  const int32_t* copies;                      // [received][slots]: rows of the output, -1: none. No slots: the same row
  uint32_t slots;
  uint64_t epoch;
  CeilingLimit limit;
};

// How ceiling_pull divides shared memory: per warp, two stages of a piece from every rank, then barriers.
constexpr uint32_t ceiling_pull_piece = 2048;
constexpr uint32_t ceiling_pull_stages = 2;
UCCLEP_HD constexpr uint32_t ceiling_pull_warp_bytes(uint32_t ranks) {
  return ceiling_pull_stages * ranks * ceiling_pull_piece;
}

// Shared memory of a block besides rows: the barriers of its warps.
UCCLEP_HD constexpr uint32_t ceiling_barrier_bytes(uint32_t barriers) {
  return (barriers * 8 + 127) / 128 * 128;
}

}  // namespace ucclep
