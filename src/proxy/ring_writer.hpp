// SPDX-License-Identifier: Apache-2.0
// Commands from a thread of the host, as a lane pushes them (fifo.hpp). For rings of the host device, whose heads lie
// where the host can reach them: fifo_perf and tests. A writer is one thread's.
#pragma once
#include <span>

#include "ucclep/device/layout/command.hpp"

namespace ucclep::proxy {

class RingWriter {
 public:
  RingWriter(const Fifo& fifo, uint32_t ring);

  // One push: at most what RingsShape::max_concurrent grants this thread. What the thread wrote before comes before the
  // commands. False when the time is up or the abort word is set; then no more may be pushed.
  bool push(std::span<const Command> commands);
  // Waits until all that was pushed has been read.
  bool wait_read();

 private:
  bool wait_for(uint64_t position);

  const Fifo fifo_;
  Packet* const slots_;
  uint64_t* const head_;
  uint64_t* const position_;
  uint64_t end_ = 0;   // of the last push
  uint64_t seen_ = 0;  // a position of the reader's
};

}  // namespace ucclep::proxy
