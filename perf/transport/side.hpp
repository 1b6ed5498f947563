// SPDX-License-Identifier: Apache-2.0
// One side of transport_perf: an endpoint, memory, and the runs that both sides take part in. Side 0 leads and times;
// it sends and side 1 receives and compares, or both do both.
#pragma once
#include <cstdint>
#include <functional>
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
  uint32_t window = 1;                           // messages that are unfinished at a time
  bool both = false;                             // each side sends
  uint64_t slots = 1;                            // places that the messages of a side have, in turn
  uint64_t bytes = 0, messages = 0, number = 0;  // messages: of a side; number: of the run, for its bytes
};

struct TransportResult {
  double seconds = 0;
  uint64_t verified = 0, wrong = 0;  // messages
};

class Side {
 public:
  Side(Place place, const TransportOptions& options, Channel channel);

  // Side 0. ready is called when both sides are, before the time begins.
  TransportResult lead(const TransportRun& run, const std::function<void()>& ready);
  void follow();  // side 1: until the end

 private:
  bool sends(const TransportRun& run) const { return side_ == 0 || run.both || run.test == TransportTest::trip; }
  bool receives(const TransportRun& run) const { return side_ == 1 || run.both || run.test == TransportTest::trip; }
  void begin(const TransportRun& run);
  transport::Operation message(const TransportRun& run, uint64_t number) const;
  void post(const transport::Operation& operation);
  void post_some(const TransportRun& run, uint64_t& sent);
  void poll();
  void until(uint64_t& count, uint64_t goal);
  void write_all(const TransportRun& run);
  void trips(const TransportRun& run);
  TransportResult take(const TransportRun& run);

  int side_;
  const TransportOptions& options_;
  Channel channel_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<SideMemory> memory_;  // slots to send from, then as many to receive into
  std::unique_ptr<transport::Endpoint> endpoint_;
  uint32_t region_ = 0, remote_ = 0;
  std::vector<transport::Operation> chain_;
  uint64_t posted_ = 0, done_ = 0;
  uint64_t arrived_ = 0, immediates_ = 0, answers_ = 0;  // of the run; immediates_: their sum
};

}  // namespace ucclep::perf
