// SPDX-License-Identifier: Apache-2.0
// The proxy's side of a measurement: takes commands, decoded, and checks each.
#pragma once
#include <cstdint>
#include <vector>

#include "fifo/bench.hpp"
#include "proxy/command_rings.hpp"

namespace ucclep::perf {

class Consumer {
 public:
  // The first `rings` bulk rings.
  Consumer(const proxy::CommandRings& rings, const RateCase& request, const FifoOptions& options);

  // Until `commands` have come; throws PerfError when none comes for too long.
  Taken take(uint64_t commands);

 private:
  uint64_t check(std::span<const Command> commands);

  std::vector<proxy::RingReader> readers_;
  std::vector<uint32_t> next_;  // the number that is due from each producer
  int timeout_ms_;
  bool corrupt_;
};

// Answers a flag: what appears in *from goes to *to, up to `last`.
void echo_flag(uint64_t* from, uint64_t* to, uint64_t last, int timeout_ms);

}  // namespace ucclep::perf
