// SPDX-License-Identifier: Apache-2.0
// One side of transport_perf: an endpoint, a window, and the runs that both sides take part in. Side 0 sends and times,
// side 1 receives and compares.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/channel.hpp"
#include "transport/command_line.hpp"
#include "transport/side_memory.hpp"
#include "transport/transport.hpp"

namespace ucclep::perf {

enum class TransportTest : uint32_t { write, trip, end };

// Of one run. Both sides are given the same.
struct TransportRun {
  TransportTest test = TransportTest::end;
  uint32_t window = 1;
  uint64_t bytes = 0, messages = 0, number = 0;  // number: of the run, for its bytes
};

struct TransportResult {
  double seconds = 0;
  uint64_t verified = 0, wrong = 0;  // messages
};

class Side {
 public:
  Side(int side, const TransportOptions& options, Channel channel);

  TransportResult lead(const TransportRun& run);  // side 0
  void follow();                                  // side 1: until the end

 private:
  void until(uint64_t& count, uint64_t goal);
  void post(uint32_t immediate, uint64_t slot, uint64_t bytes);
  void poll();
  double write_all(const TransportRun& run);
  double trips(const TransportRun& run);
  TransportResult take(const TransportRun& run);
  void fill(const TransportRun& run);
  uint64_t slots_of(const TransportRun& run) const;

  int side_;
  const TransportOptions& options_;
  Channel channel_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<SideMemory> window_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  uint32_t region_ = 0, remote_ = 0;
  std::vector<transport::Operation> chain_;
  uint64_t posted_ = 0, done_ = 0, arrived_ = 0, immediates_ = 0;  // immediates_: their sum
};

}  // namespace ucclep::perf
