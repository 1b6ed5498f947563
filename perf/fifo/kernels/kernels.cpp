// SPDX-License-Identifier: Apache-2.0
#include "fifo/kernels/arguments.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN void give_up(uint32_t* late) {
  store_relaxed<Scope::system>(late, 1u);
}

// Every lane that pushes numbers its commands from 0 on.
UCCLEP_KERNEL(fifo_rate, FifoRateArgs) {
  const uint32_t warp = block_id() * (block_size() / wave_size) + warp_id();
  const uint32_t first = warp * wave_size, ring = warp % args.rings;
  if (first >= args.producers) return;
  const uint32_t width = args.producers - first < wave_size ? args.producers - first : wave_size;
  for (uint32_t i = 0; i < args.pushes; ++i) {
    if (args.ordered != 0) order_before_push();
    bool ok = false;
    if (args.batch == 1) {
      ok = push(args.fifo, lane_id() < width, ring, fifo_command(first + lane_id(), i));
    } else {
      ok = push_run(args.fifo, ring, args.batch * width,
                    [&](uint32_t n) { return fifo_command(first + n % width, i * args.batch + n / width); });
    }
    if (ok) continue;
    if (lane_id() == 0) give_up(args.late);
    return;
  }
}

// From a lane to the reader and back.
UCCLEP_KERNEL(fifo_trip, FifoTripArgs) {
  if (thread_id() != 0) return;
  const uint64_t begin = clock_ns(), position = load_relaxed<Scope::gpu>(args.fifo.heads);
  for (uint32_t i = 0; i < args.rounds; ++i) {
    if (args.ordered != 0) fence_acq_rel<Scope::system>();
    if (!push_lane(args.fifo, 0, fifo_command(0, i)) || !wait_read(args.fifo, 0, position + i + 1)) {
      return give_up(args.late);
    }
  }
  store_relaxed<Scope::system>(args.ns, clock_ns() - begin);
}

// The same way with one word there and one back, and nothing else.
UCCLEP_KERNEL(fifo_flag, FifoTripArgs) {
  if (thread_id() != 0) return;
  const Wait wait = begin_wait(args.fifo.timeout_ns, args.fifo.abort_word);
  for (uint64_t value = args.epoch; value < args.epoch + args.rounds; ++value) {
    if (args.ordered != 0) {
      publish(args.to_host, value);
    } else {
      store_relaxed<Scope::system>(args.to_host, value);
    }
    for (uint32_t polls = 1; load_relaxed<Scope::system>(args.to_device) < value; ++polls) {
      if (polls % 1024 == 0 && (aborted(wait) || timed_out(wait))) return give_up(args.late);
    }
    if (args.ordered != 0) fence_acq_rel<Scope::system>();
  }
  store_relaxed<Scope::system>(args.ns, clock_ns() - wait.start_ns);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
