// SPDX-License-Identifier: Apache-2.0
// The pairs of transport_perf beside the first: theirs are the same runs, which all begin at once.
#pragma once
#include <vector>

#include "base/fd.hpp"
#include "transport/channel.hpp"
#include "transport/side.hpp"

namespace ucclep::perf {

// As the first pair sees them. Without sockets there are none.
class OtherPairs {
 public:
  OtherPairs() = default;
  OtherPairs(std::vector<Fd> sockets, int timeout_ms);

  void begin(const TransportRun& run);
  void start();                                  // when all are ready
  TransportResult slowest(TransportResult own);  // its time, and what all have verified

 private:
  std::vector<Channel> channels_;
  bool running_ = false;
};

// Side 0 of another pair: takes part in the runs of the first until the end.
void follow_first_pair(Side& side, Channel first);

}  // namespace ucclep::perf
