// SPDX-License-Identifier: Apache-2.0
// The two ends of a ring of arrivals. Each end keeps its own position and a copy of the other's, which it renews only
// when the ring looks full or empty.
#pragma once
#include "transport/loopback/segment.hpp"

namespace ucclep::transport::loopback {

class RingProducer {
 public:
  RingProducer(const Segment& segment, uint32_t ring)
      : words_(&segment.ring(ring)),
        entries_(segment.ring_entries(ring)),
        mask_(segment.entries() - 1),
        first_turns_(words_->turns.load(std::memory_order_acquire)),
        tail_(words_->tail.load(std::memory_order_relaxed)) {}

  bool open() const noexcept { return words_->turns.load(std::memory_order_acquire) % 2 == 1; }
  // It has been open since this end began.
  bool ended() const noexcept {
    const uint32_t turns = words_->turns.load(std::memory_order_acquire);
    return turns % 2 == 0 && turns != first_turns_;
  }
  bool full() noexcept {
    if (tail_ - head_ <= mask_) return false;
    head_ = words_->head.load(std::memory_order_acquire);
    return tail_ - head_ > mask_;
  }
  // The ring is not full. The payload was written before.
  void push(uint32_t imm, uint64_t bytes) noexcept {
    entries_[tail_ & mask_] = {imm, 0, bytes};
    words_->tail.store(++tail_, std::memory_order_release);
  }

 private:
  RingWords* words_;
  RingEntry* entries_;
  uint64_t mask_;
  uint32_t first_turns_;
  uint64_t tail_, head_ = 0;
};

class RingConsumer {
 public:
  RingConsumer(const Segment& segment, uint32_t ring)
      : words_(&segment.ring(ring)), entries_(segment.ring_entries(ring)), mask_(segment.entries() - 1) {
    // What an earlier connection left behind is nobody's.
    head_ = tail_ = words_->tail.load(std::memory_order_acquire);
    words_->head.store(head_, std::memory_order_release);
    turn();
  }

  void close() noexcept { turn(); }
  bool empty() noexcept {
    if (head_ != tail_) return false;
    tail_ = words_->tail.load(std::memory_order_acquire);
    return head_ == tail_;
  }
  // The ring is not empty.
  RingEntry pop() noexcept {
    const RingEntry entry = entries_[head_ & mask_];
    words_->head.store(++head_, std::memory_order_release);
    return entry;
  }

 private:
  void turn() noexcept { words_->turns.fetch_add(1, std::memory_order_release); }

  RingWords* words_;
  RingEntry* entries_;
  uint64_t mask_;
  uint64_t head_, tail_;
};

}  // namespace ucclep::transport::loopback
