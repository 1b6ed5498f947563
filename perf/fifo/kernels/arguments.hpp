// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of fifo_perf.
#pragma once
#include "ucclep/device/network/fifo.hpp"

namespace ucclep {

struct FifoRateArgs {
  Fifo fifo;
  uint32_t rings;      // warps are dealt out to
  uint32_t producers;  // lanes that push; the rest of the last warp looks on
  uint32_t pushes;     // of each warp
  uint32_t batch;      // commands of each lane in a push
  uint32_t ordered;    // 1: each push behind what the warp has written
  uint32_t* late;      // host memory: 1 when a wait was in vain
};

struct FifoTripArgs {
  Fifo fifo;
  uint32_t rounds;
  uint32_t ordered;
  uint64_t epoch;     // of the flag: above all earlier ones
  uint64_t* to_host;  // the bare flag, pinned host memory
  const uint64_t* to_device;
  uint64_t* ns;  // host memory: what all rounds took
  uint32_t* late;
};

// What says who pushed a command, and as which of his: all of it is checked.
constexpr uint32_t fifo_most_producers = 1u << 20;
UCCLEP_HD constexpr Command fifo_command(uint32_t producer, uint32_t number) {
  CommandFields c;
  c.operation = CommandOp::put;
  c.destination = static_cast<uint16_t>(producer % max_ranks);
  c.flags = static_cast<uint8_t>(producer / max_ranks);
  c.epoch = number;
  c.row = number & command_field::Row::largest;
  c.rows = 1;
  c.bytes = 16;
  return c;
}

}  // namespace ucclep
