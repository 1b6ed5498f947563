// SPDX-License-Identifier: Apache-2.0
// What the proxy threads have done so far. A counter has one writer, its thread; anybody may read it.
#pragma once
#include <atomic>
#include <cstdint>

namespace ucclep::proxy {

class Counter {
 public:
  void add(uint64_t more) { value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed); }
  void raise_to(uint64_t value) {
    if (value > value_.load(std::memory_order_relaxed)) value_.store(value, std::memory_order_relaxed);
  }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Of a group. T: Counter at the thread that counts, uint64_t in a sum over threads.
template <class T>
struct GroupCounts {
  T commands{}, bad_commands{};
  T dropped{};                       // for a peer that is lost or detached
  T puts{}, chunks{};                // puts - chunks: merged into another's write
  T headers{}, words{};              // messages; of the words' values only the latest is sent
  T channel{};                       // messages of the channel
  T bytes{};                         // of chunks and headers, and of those
  T bytes_in{};                      // of arrivals of which the transport tells the length
  T doorbells{};                     // chains posted
  T credit_stalls{};                 // a peer had no credit left
  T nic_stalls{};                    // the NIC had all that it bears
  T max_in_flight{};                 // data messages of one peer that were not returned
  T arrivals{};                      // of whatever kind
  T early{};                         // chunks that came before one below them
  T deepest{};                       // how many below it were missing, at most
  T repeated{}, stale{}, foreign{};  // those that were dropped
};
using GroupStatistics = GroupCounts<uint64_t>;

inline void add_to(GroupStatistics& sum, const GroupCounts<Counter>& part) {
  sum.commands += part.commands.get();
  sum.bad_commands += part.bad_commands.get();
  sum.dropped += part.dropped.get();
  sum.puts += part.puts.get();
  sum.chunks += part.chunks.get();
  sum.headers += part.headers.get();
  sum.words += part.words.get();
  sum.channel += part.channel.get();
  sum.bytes += part.bytes.get();
  sum.bytes_in += part.bytes_in.get();
  sum.doorbells += part.doorbells.get();
  sum.credit_stalls += part.credit_stalls.get();
  sum.nic_stalls += part.nic_stalls.get();
  if (part.max_in_flight.get() > sum.max_in_flight) sum.max_in_flight = part.max_in_flight.get();
  sum.arrivals += part.arrivals.get();
  sum.early += part.early.get();
  if (part.deepest.get() > sum.deepest) sum.deepest = part.deepest.get();
  sum.repeated += part.repeated.get();
  sum.stale += part.stale.get();
  sum.foreign += part.foreign.get();
}

// Of a thread.
struct ThreadStatistics {
  uint64_t rounds = 0;  // looks at everything that it owns
  uint64_t yields = 0, sleeps = 0;
  uint64_t cpu_ns = 0;  // of a core
};

}  // namespace ucclep::proxy
