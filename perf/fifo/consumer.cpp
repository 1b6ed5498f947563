// SPDX-License-Identifier: Apache-2.0
#include "fifo/consumer.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>

#include "api.hpp"
#include "base/deadline.hpp"
#include "fifo/kernels/arguments.hpp"
#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep::perf {
namespace {

using Clock = std::chrono::steady_clock;

// Counts polls that found nothing, one after the other, and looks at the clock now and then.
class Patience {
 public:
  explicit Patience(int timeout_ms) : timeout_ms_(timeout_ms) {}
  void found() { empty_ = 0; }
  bool is_over_after_nothing() {
    constexpr uint32_t polls_per_look = 1 << 16;
    if (++empty_ % polls_per_look != 0) return false;
    if (empty_ == polls_per_look) deadline_ = Deadline::after_ms(timeout_ms_);
    return deadline_.expired();
  }

 private:
  int timeout_ms_;
  uint64_t empty_ = 0;
  Deadline deadline_ = Deadline::after_ms(0);
};

Command damaged(const Command& command) {
  Packet slot = command.in_slot(0);
  slot.epoch ^= 1;
  return Command::of_slot(slot, 0);
}

}  // namespace

Consumer::Consumer(const proxy::CommandRings& rings, const RateCase& request, const FifoOptions& options)
    : next_(request.producers), timeout_ms_(options.timeout_ms), corrupt_(options.corrupt) {
  // A quarter of a ring: often enough for producers that wait, seldom enough for a line that they pull over.
  const uint64_t publish_every = (uint64_t{1} << rings.fifo().capacity_log2) / 4;
  for (uint32_t ring = 0; ring < request.rings; ++ring) {
    readers_.emplace_back(rings.memory(ring), static_cast<size_t>(options.poll), publish_every);
  }
}

uint64_t Consumer::check(std::span<const Command> commands) {
  uint64_t wrong = 0;
  for (Command command : commands) {
    if (corrupt_) command = damaged(command);
    corrupt_ = false;
    const uint32_t producer = command.flags() * max_ranks + command.destination();
    const bool known = producer < next_.size();
    if (!known || command != fifo_command(producer, next_[producer])) ++wrong;
    if (known) next_[producer] = command.epoch() + 1;
  }
  return wrong;
}

Taken Consumer::take(uint64_t commands) {
  Taken taken;
  Clock::time_point begin{};
  Patience patience(timeout_ms_);
  while (taken.commands < commands) {
    uint64_t found = 0;
    for (proxy::RingReader& reader : readers_) {
      const auto batch = reader.poll();
      if (batch.empty()) continue;
      taken.wrong += check(batch);
      reader.release(batch.size());
      found += batch.size();
    }
    if (found == 0) {
      if (!patience.is_over_after_nothing()) continue;
      throw PerfError(
          fmt::format("{} of {} commands arrived, then none for {} ms", taken.commands, commands, timeout_ms_));
    }
    patience.found();
    if (taken.commands == 0) {
      begin = Clock::now();
      taken.first = found;
    }
    taken.commands += found;
  }
  taken.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (proxy::RingReader& reader : readers_) taken.wrong += reader.poll().size();  // more than were pushed
  return taken;
}

void echo_flag(uint64_t* from, uint64_t* to, uint64_t last, int timeout_ms) {
  Patience patience(timeout_ms);
  for (uint64_t answered = 0; answered < last;) {
    const uint64_t value = std::atomic_ref(*from).load(std::memory_order_acquire);
    if (value != answered) {
      std::atomic_ref(*to).store(value, std::memory_order_release);
      executor::note_store();
      answered = value;
      patience.found();
    } else if (patience.is_over_after_nothing()) {
      throw PerfError(fmt::format("no flag arrived for {} ms", timeout_ms));
    }
  }
}

}  // namespace ucclep::perf
