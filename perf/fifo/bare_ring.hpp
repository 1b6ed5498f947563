// SPDX-License-Identifier: Apache-2.0
// The baseline: a ring for one producer and one consumer with nothing to spare. 16 bytes an entry, of which half say
// whether it is there; no reservation, no fields, no bound on its waits but the other side.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

namespace ucclep::perf {

class BareRing {
 public:
  explicit BareRing(uint32_t capacity_log2) : entries_(size_t{1} << capacity_log2) {}

  // False: no room.
  bool push(uint64_t value) {
    const uint64_t capacity = entries_.size();
    if (pushed_ - seen_ == capacity && pushed_ - (seen_ = read_.load(std::memory_order_acquire)) == capacity)
      return false;
    Entry& entry = entries_[pushed_ & (capacity - 1)];
    entry.value = value;
    entry.number.store(++pushed_, std::memory_order_release);
    return true;
  }

  bool pop(uint64_t* value) {
    const uint64_t capacity = entries_.size();
    Entry& entry = entries_[popped_ & (capacity - 1)];
    if (entry.number.load(std::memory_order_acquire) != popped_ + 1) {
      read_.store(popped_, std::memory_order_release);
      return false;
    }
    *value = entry.value;
    if (++popped_ % (capacity / 4) == 0) read_.store(popped_, std::memory_order_release);
    return true;
  }

 private:
  struct alignas(16) Entry {
    uint64_t value = 0;
    std::atomic<uint64_t> number = 0;
  };
  static constexpr size_t line = 128;

  std::vector<Entry> entries_;
  alignas(line) uint64_t pushed_ = 0;
  uint64_t seen_ = 0;
  alignas(line) uint64_t popped_ = 0;
  alignas(line) std::atomic<uint64_t> read_ = 0;
};

}  // namespace ucclep::perf
