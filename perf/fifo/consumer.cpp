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

constexpr uint32_t polls_per_look = 1 << 16;  // at the clock

Command damaged(const Command& command) {
  Packet slot = command.in_slot(0);
  slot.epoch ^= 1;
  return Command::of_slot(slot, 0);
}

}  // namespace

Consumer::Consumer(const proxy::CommandRings& rings, const RateCase& wanted, const FifoOptions& options)
    : next_(wanted.producers), timeout_ms_(options.timeout_ms), corrupt_(options.corrupt) {
  // A quarter of a ring: often enough for producers that wait, seldom enough for a line that they pull over.
  const uint64_t publish_every = (uint64_t{1} << rings.fifo().capacity_log2) / 4;
  for (uint32_t ring = 0; ring < wanted.rings; ++ring) {
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
  uint32_t empty = 0;
  Deadline deadline = Deadline::after_ms(timeout_ms_);
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
      if (++empty % polls_per_look != 0) continue;
      if (deadline.expired()) {
        throw PerfError(fmt::format("{} of {} commands came within {} ms", taken.commands, commands, timeout_ms_));
      }
      continue;
    }
    if (taken.commands == 0) {
      begin = Clock::now();
      taken.first = found;
    }
    if (empty >= polls_per_look) {
      deadline = Deadline::after_ms(timeout_ms_);
      empty = 0;
    }
    taken.commands += found;
  }
  taken.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (proxy::RingReader& reader : readers_) taken.wrong += reader.poll().size();  // more than were pushed
  return taken;
}

void echo_flag(uint64_t* from, uint64_t* to, uint64_t last, int timeout_ms) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  uint32_t polls = 0;
  for (uint64_t answered = 0; answered < last;) {
    const uint64_t value = std::atomic_ref(*from).load(std::memory_order_acquire);
    if (value != answered) {
      std::atomic_ref(*to).store(value, std::memory_order_release);
      executor::note_store();
      answered = value;
    } else if (++polls % polls_per_look == 0 && deadline.expired()) {
      throw PerfError(fmt::format("a flag did not come within {} ms", timeout_ms));
    }
  }
}

}  // namespace ucclep::perf
