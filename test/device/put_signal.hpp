// SPDX-License-Identifier: Apache-2.0
// The smallest exchange: every rank writes rows into each peer's window and publishes a signal, waits for the peers'
// signals, and checks what they wrote. The first thing to try on a new target.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"

namespace ucclep {

constexpr unsigned put_signal_max_ranks = 64;

struct PutSignalArgs {
  unsigned ranks;
  unsigned rank;
  unsigned words;                                // per (source, destination), a multiple of 2
  uint64_t epoch;                                // of this launch: 1, 2, ...
  unsigned char* windows[put_signal_max_ranks];  // of all ranks; each holds [ranks] signals, then [ranks][words] data
  uint64_t* wrong;                               // device memory, zero before: words that were not as written
  uint64_t* timed_out;                           // device memory, zero before: peers whose signal did not come
  uint64_t limit_ns;
  const uint32_t* abort_word;
};

// Signals lie 128 bytes apart, so that no two writers share a cache line.
constexpr size_t put_signal_stride = 128;
UCCLEP_HD constexpr size_t put_signal_data(unsigned ranks) {
  return put_signal_stride * ranks;
}
constexpr size_t put_signal_window_bytes(unsigned ranks, unsigned words) {
  return put_signal_data(ranks) + size_t{ranks} * words * sizeof(uint64_t);
}

}  // namespace ucclep
