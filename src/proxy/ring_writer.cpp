// SPDX-License-Identifier: Apache-2.0
#include "proxy/ring_writer.hpp"

#include <atomic>
#include <chrono>
#include <thread>

namespace ucclep::proxy {
namespace {

// At the clock, and away from this core: a fraction of a millisecond. Whoever gives way at once on a busy machine waits
// for a slice of time where a microsecond would have done.
constexpr uint32_t polls_per_look = 1 << 16;

}  // namespace

RingWriter::RingWriter(const Fifo& fifo, uint32_t ring)
    : fifo_(fifo),
      slots_(fifo.slots + (size_t{ring} << fifo.capacity_log2)),
      head_(fifo.heads + size_t{ring} * fifo_stride),
      position_(const_cast<uint64_t*>(fifo.positions) + size_t{ring} * fifo_stride) {}

bool RingWriter::push(std::span<const Command> commands) {
  const uint64_t mask = (uint64_t{1} << fifo_.capacity_log2) - 1;
  uint64_t position = std::atomic_ref(*head_).fetch_add(commands.size(), std::memory_order_relaxed);
  for (const Command& command : commands) {
    const Packet packet = command.in_slot(lap_parity(position, fifo_.capacity_log2));
    Packet& slot = slots_[position++ & mask];
    std::atomic_ref(slot.value).store(packet.value, std::memory_order_relaxed);
    std::atomic_ref(slot.epoch).store(packet.epoch, std::memory_order_release);
  }
  end_ = position;
  return seen_ + fifo_.high_water >= end_ || wait_for(end_ - fifo_.high_water);
}

bool RingWriter::wait_read() {
  return wait_for(end_);
}

bool RingWriter::wait_for(uint64_t position) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (uint32_t polls = 1;; ++polls) {
    seen_ = std::atomic_ref(*position_).load(std::memory_order_acquire);
    if (seen_ >= position) return true;
    if (polls % polls_per_look != 0) continue;
    if (std::atomic_ref(*const_cast<uint32_t*>(fifo_.abort_word)).load(std::memory_order_relaxed) != 0) return false;
    if (Clock::now() - begin >= std::chrono::nanoseconds(fifo_.timeout_ns)) return false;
    std::this_thread::yield();  // the reader may need this core
  }
}

}  // namespace ucclep::proxy
