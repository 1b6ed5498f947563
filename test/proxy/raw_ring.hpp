// SPDX-License-Identifier: Apache-2.0
// A ring in plain memory, as if it had been in use up to some position.
#pragma once
#include <atomic>
#include <vector>

#include "proxy/ring_reader.hpp"
#include "proxy/ring_writer.hpp"

namespace ucclep::test {

class RawRing {
 public:
  // high_water: capacity less `max_concurrent`.
  RawRing(uint32_t capacity_log2, uint64_t start, uint32_t max_concurrent = 1)
      : slots_(size_t{1} << capacity_log2), heads_(fifo_stride), positions_(fifo_stride) {
    // What lies in a slot was written at the last position before `start` that falls on it, if there was one.
    const uint64_t capacity = slots_.size();
    for (uint64_t slot = 0; slot < capacity; ++slot) {
      const uint64_t next = start + (slot - start) % capacity;
      if (next >= capacity) slots_[slot] = Command().in_slot(lap_parity(next - capacity, capacity_log2));
    }
    heads_[0] = positions_[0] = start;
    fifo_.slots = slots_.data();
    fifo_.heads = heads_.data();
    fifo_.positions = positions_.data();
    fifo_.capacity_log2 = capacity_log2;
    fifo_.high_water = static_cast<uint32_t>(capacity) - max_concurrent;
    fifo_.timeout_ns = uint64_t{20} * 1'000'000'000;
    fifo_.abort_word = &abort_;
  }
  RawRing(const RawRing&) = delete;
  RawRing& operator=(const RawRing&) = delete;

  Fifo& fifo() { return fifo_; }
  proxy::RingMemory memory() { return {slots_.data(), positions_.data(), fifo_.capacity_log2}; }
  Packet& slot(uint64_t position) { return slots_[position % slots_.size()]; }
  uint64_t position() { return std::atomic_ref(positions_[0]).load(std::memory_order_acquire); }
  uint64_t head() { return std::atomic_ref(heads_[0]).load(); }
  void abort() { std::atomic_ref(abort_).store(1); }
  void store(uint64_t position, const Command& command) {
    slot(position) = command.in_slot(lap_parity(position, fifo_.capacity_log2));
  }

 private:
  std::vector<Packet> slots_;
  std::vector<uint64_t> heads_, positions_;
  uint32_t abort_ = 0;
  Fifo fifo_{};
};

// A command that says who pushed it, and as which of his.
inline Command numbered(uint32_t producer, uint32_t number) {
  CommandFields c;
  c.operation = CommandOp::put;
  c.destination = static_cast<uint16_t>(producer % max_ranks);
  c.flags = static_cast<uint8_t>(producer / max_ranks);
  c.epoch = ~number;
  c.row = number % (command_field::Row::largest + 1);
  c.rows = static_cast<uint16_t>(number % (command_field::Rows::largest + 1));
  c.bytes = 16 * (number % 1000);
  return c;
}

}  // namespace ucclep::test
