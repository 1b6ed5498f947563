// SPDX-License-Identifier: Apache-2.0
// Litmus tests of the verbs that order memory: the smallest exchange that relies on each, and the same without what
// makes it correct. Every warp of a launch has a channel to its like on the other device; in every second one this
// device writes. In each round the writer puts a row into the channel and the reader looks at every word of it.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"

namespace ucclep::test {

struct LitmusArgs {
  unsigned char* windows[2];  // of both devices, zero before
  uint32_t rank;              // 0, 1
  uint32_t rounds;
  uint64_t* violations;  // device memory, zero before: rounds in which a word was not what the writer had put there
  uint64_t* timed_out;   // channels that gave up
  uint64_t limit_ns;     // of one wait
  const uint32_t* abort_word;
};

constexpr uint32_t litmus_row_bytes = 2048;
// A channel in a window: the word that announces a row, the word that says it was read, the row.
constexpr uint32_t litmus_published = 0, litmus_consumed = 128, litmus_row = 256;
constexpr uint32_t litmus_channel_bytes = litmus_row + litmus_row_bytes;
// Of shared memory, for each warp.
constexpr uint32_t litmus_barrier = litmus_row_bytes, litmus_stage_bytes = litmus_row_bytes + 128;

}  // namespace ucclep::test
