// SPDX-License-Identifier: Apache-2.0
// What a NIC may have under way at once, in messages and in bytes: its table row says how much it bears. All proxy
// threads that use the NIC share it, so both counts are one word.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ucclep::proxy {

class InFlight {
 public:
  static constexpr unsigned byte_bits = 44;
  static constexpr uint64_t any_bytes = (uint64_t{1} << byte_bits) - 1;
  static constexpr uint32_t any_messages = (1u << (64 - byte_bits)) - 1;

  InFlight(uint64_t max_bytes, uint32_t max_messages)
      : max_bytes_(std::min(max_bytes, any_bytes)), max_messages_(std::min(max_messages, any_messages)) {}

  // An endpoint that is opened later may bear less. What is in flight already stays.
  void narrow(uint64_t max_bytes, uint32_t max_messages) {
    lower(max_bytes_, std::min(max_bytes, any_bytes));
    lower(max_messages_, std::min(max_messages, any_messages));
  }

  // A message larger than all that is allowed goes alone.
  bool acquire(uint64_t bytes) {
    const uint64_t max_bytes = max_bytes_.load(std::memory_order_relaxed);
    const uint64_t max_messages = max_messages_.load(std::memory_order_relaxed);
    uint64_t now = word_.load(std::memory_order_relaxed);
    do {
      const bool fits = bytes <= max_bytes && bytes_of(now) <= max_bytes - bytes;
      if (messages_of(now) >= max_messages || (!fits && now != 0)) return false;
    } while (!word_.compare_exchange_weak(now, now + one_of(bytes), std::memory_order_relaxed));
    return true;
  }
  // It completed.
  void release(uint64_t bytes) { release(bytes, 1); }
  void release(uint64_t bytes, uint32_t messages) {
    word_.fetch_sub((uint64_t{messages} << byte_bits) + std::min(bytes, any_bytes), std::memory_order_relaxed);
  }
  uint32_t messages() const { return messages_of(word_.load(std::memory_order_relaxed)); }
  uint64_t bytes() const { return bytes_of(word_.load(std::memory_order_relaxed)); }

 private:
  static constexpr uint64_t one_of(uint64_t bytes) { return (uint64_t{1} << byte_bits) + std::min(bytes, any_bytes); }
  static constexpr uint64_t bytes_of(uint64_t word) { return word & any_bytes; }
  static constexpr uint32_t messages_of(uint64_t word) { return static_cast<uint32_t>(word >> byte_bits); }
  template <class T>
  static void lower(std::atomic<T>& limit, T max) {
    T now = limit.load(std::memory_order_relaxed);
    while (max < now && !limit.compare_exchange_weak(now, max, std::memory_order_relaxed)) {
    }
  }

  std::atomic<uint64_t> max_bytes_, word_{0};
  std::atomic<uint32_t> max_messages_;
};

}  // namespace ucclep::proxy
