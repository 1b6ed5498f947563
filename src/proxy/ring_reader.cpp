// SPDX-License-Identifier: Apache-2.0
#include "proxy/ring_reader.hpp"

#include <algorithm>
#include <atomic>

#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep::proxy {
namespace {

constexpr size_t slots_of_line = 64 / sizeof(Packet);
constexpr size_t prefetched_slots = 8 * slots_of_line;

Packet load(Packet& slot) {
  return {std::atomic_ref(slot.value).load(std::memory_order_acquire),
          std::atomic_ref(slot.epoch).load(std::memory_order_acquire)};
}

}  // namespace

RingReader::RingReader(const RingMemory& memory, size_t batch, uint64_t publish_every)
    : memory_(memory),
      batch_(batch),
      publish_every_(publish_every),
      commands_(std::make_unique<Command[]>(batch)),
      released_(std::atomic_ref(*memory.position).load(std::memory_order_acquire)),
      published_(released_) {}

std::span<const Command> RingReader::poll() {
  if (first_ != 0 && (last_ == batch_ || first_ == last_)) {  // what is left moves to the front
    std::copy(commands_.get() + first_, commands_.get() + last_, commands_.get());
    last_ -= first_;
    first_ = 0;
  }
  const uint64_t mask = (uint64_t{1} << memory_.capacity_log2) - 1;
  uint64_t position = released_ + (last_ - first_);
  Command* to = commands_.get() + last_;
  Command* const end = commands_.get() + batch_;
  for (; to != end; ++to, ++position) {
    if (position % slots_of_line == 0) __builtin_prefetch(memory_.slots + ((position + prefetched_slots) & mask));
    *to = Command::of_slot(load(memory_.slots[position & mask]), lap_parity(position, memory_.capacity_log2));
    if (!to->is_whole()) break;
  }
  drained_ = to != end;
  last_ = to - commands_.get();
  if (first_ == last_ && published_ != released_) publish();
  return {commands_.get() + first_, last_ - first_};
}

void RingReader::release(size_t count) {
  first_ += count;
  released_ += count;
  // A lane that waits for its command waits for this.
  if (drained_ || released_ - published_ >= publish_every_) publish();
}

void RingReader::publish() {
  published_ = released_;
  std::atomic_ref(*memory_.position).store(released_, std::memory_order_release);
  executor::note_store();
}

}  // namespace ucclep::proxy
