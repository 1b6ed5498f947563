// SPDX-License-Identifier: Apache-2.0
// Kernels that push commands, right ones and a broken one. Compiled once per wave size.
#include "fifo_kernels.hpp"

#include "raw_ring.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::numbered;
using test::PushArgs;

UCCLEP_FN uint32_t producer() {
  return block_id() * block_size() + thread_id();
}

UCCLEP_FN void refuse(const PushArgs& args) {
  fetch_add_relaxed<Scope::gpu>(args.refused, uint64_t{1});
}

UCCLEP_FN uint64_t& payload_of(const PushArgs& args, uint32_t round) {
  return args.payload[size_t{producer()} * args.rounds + round];
}

// Each lane leaves out every fifth round, another one than its neighbours, and goes from ring to ring.
UCCLEP_KERNEL(fifo_push, PushArgs) {
  for (uint32_t round = 0; round < args.rounds; ++round) {
    const bool active = (producer() + round) % 5 != 0;
    if (active) payload_of(args, round) = round + 1;
    order_before_push();
    if (!push(args.fifo, active, (producer() + round) % args.rings, numbered(producer(), round))) return refuse(args);
  }
}

// Runs of a warp, each lane's commands numbered in order.
UCCLEP_KERNEL(fifo_push_run, PushArgs) {
  const uint32_t first_lane_of_warp = producer() - lane_id();
  for (uint32_t round = 0; round < args.rounds; round += args.run) {
    for (uint32_t i = 0; i < args.run; ++i) payload_of(args, round + i) = round + i + 1;
    order_before_push();
    const bool ok =
        push_run(args.fifo, (first_lane_of_warp / wave_size) % args.rings, args.run * wave_size,
                 [&](uint32_t i) { return numbered(first_lane_of_warp + i % wave_size, round + i / wave_size); });
    if (!ok) return refuse(args);
  }
}

// Some lanes alone, each when it likes; and each waits until its command has been read.
UCCLEP_KERNEL(fifo_push_lane, PushArgs) {
  if (lane_id() % 7 != 3) return;
  const uint32_t ring = producer() % args.rings;
  for (uint32_t round = 0; round < args.rounds; ++round) {
    payload_of(args, round) = round + 1;
    fence_acq_rel<Scope::system>();
    if (!push_lane(args.fifo, ring, numbered(producer(), round))) return refuse(args);
    if (round % 4 != 3) continue;
    if (!wait_read(args.fifo, ring, load_relaxed<Scope::gpu>(args.fifo.heads + ring * fifo_stride)))
      return refuse(args);
  }
}

// Broken: the command goes out before what it is about was written. To be seen it waits until the command was read.
UCCLEP_KERNEL(fifo_push_too_early, PushArgs) {
  if (producer() != 0) return;
  for (uint32_t round = 0; round < args.rounds; ++round) {
    if (!push_lane(args.fifo, 0, numbered(0, round)) || !wait_read(args.fifo, 0, round + 1)) return refuse(args);
    payload_of(args, round) = round + 1;
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
