// SPDX-License-Identifier: Apache-2.0
// put_signal among several ranks.
#pragma once
#include <catch2/catch.hpp>
#include <vector>

#include "put_signal.hpp"
#include "ranks.hpp"

namespace ucclep::test {

struct ExchangeCounts {
  uint64_t wrong, timed_out;
  uint32_t abort_word;
};

// One launch per rank; adds up what the ranks counted.
inline ExchangeCounts exchange_once(Ranks& ranks, const char* kernel, const LaunchShape& shape, unsigned words,
                                    uint64_t epoch) {
  std::vector<ExchangeCounts*> counts;
  PutSignalArgs args{};
  args.ranks = ranks.count();
  args.words = words;
  args.epoch = epoch;
  args.limit_ns = 30'000'000'000;
  for (unsigned r = 0; r < ranks.count(); ++r) args.windows[r] = ranks.window(r);
  for (unsigned r = 0; r < ranks.count(); ++r) {
    counts.push_back(static_cast<ExchangeCounts*>(ranks.device(r).alloc(sizeof(ExchangeCounts))));
    args.rank = r;
    args.wrong = &counts[r]->wrong;
    args.timed_out = &counts[r]->timed_out;
    args.abort_word = &counts[r]->abort_word;
    ranks.device(r).launch({kernel}, shape, &args, sizeof args, nullptr);
  }
  CHECK(ranks.synchronize());
  ExchangeCounts sum{};
  for (unsigned r = 0; r < ranks.count(); ++r) {
    sum.wrong += counts[r]->wrong;
    sum.timed_out += counts[r]->timed_out;
    ranks.device(r).free(counts[r]);
  }
  return sum;
}

inline ExchangeCounts exchange_rows(const char* kernel, unsigned wave, unsigned count, HostDeviceConfig config = {}) {
  constexpr unsigned words = 1024;
  config.wave = wave;
  Ranks ranks(count, put_signal_window_bytes(count, words), config);
  ExchangeCounts sum{};
  for (uint64_t epoch = 1; epoch <= 5; ++epoch) {
    const ExchangeCounts counts = exchange_once(ranks, kernel, {2, 128, 0}, words, epoch);
    sum.wrong += counts.wrong;
    sum.timed_out += counts.timed_out;
  }
  return sum;
}

}  // namespace ucclep::test
