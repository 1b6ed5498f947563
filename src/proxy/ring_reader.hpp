// SPDX-License-Identifier: Apache-2.0
// The host side of a command ring: reads commands in batches, and tells the device how far it has come. One thread at a
// time; it allocates nothing after it was made.
//
//   for (const Command& command : reader.poll()) post(command);
//   reader.release(posted);
//
// fifo.hpp says what is ordered before what. The two halves of a slot are read by two 8-byte loads, each an acquire; a
// command is accepted when both have the parity of the lap, so no store of 16 bytes is assumed to arrive whole.
//
// The floor: a cache line holds 4 commands, and comes to the core once. At 100 M commands/s there are 40 ns for a line,
// about as long as one takes from the last-level cache; so several must be on their way at once. Slots are independent
// of each other, and the core reads ahead of the branch that ends the batch; the prefetch helps it past that window.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ucclep/device/layout/command.hpp"

namespace ucclep::proxy {

struct RingMemory {
  Packet* slots;
  uint64_t* position;  // of the reader, for the device
  uint32_t capacity_log2;
};

class RingReader {
 public:
  // Begins at the position that the memory says. batch: commands of one poll at most. publish_every: the device hears
  // of the position when so many were released since, or when the ring is empty.
  RingReader(const RingMemory& memory, size_t batch, uint64_t publish_every);

  // What has come and was not released, in the order of the ring, at most a batch. Good until the next poll.
  std::span<const Command> poll();
  // The first `count` of those need the ring no longer.
  void release(size_t count);
  void release_all() {
    if (first_ != last_) release(last_ - first_);
  }

  uint64_t position() const { return released_; }

 private:
  void publish();

  RingMemory memory_;
  size_t batch_;
  uint64_t publish_every_;
  std::unique_ptr<Command[]> commands_;
  size_t first_ = 0, last_ = 0;  // of commands_: read and not released
  uint64_t released_ = 0, published_ = 0;
  bool drained_ = true;  // the last poll came to a slot that is empty
};

}  // namespace ucclep::proxy
