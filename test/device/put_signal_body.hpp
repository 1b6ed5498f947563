// SPDX-License-Identifier: Apache-2.0
// The body of put_signal, with the two steps that make it correct as a parameter: tests leave one out and see it
// caught.
#pragma once
#include "put_signal.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

struct PutSignalSteps {
  static UCCLEP_FN void announce(uint64_t* signal, uint64_t epoch) { publish(signal, epoch); }
  static UCCLEP_FN void join() { sync_block(); }
};

UCCLEP_FN uint64_t put_signal_word(uint64_t epoch, unsigned source, unsigned destination, unsigned index) {
  return epoch << 40 ^ uint64_t { source } << 32 ^ uint64_t { destination } << 24 ^ index;
}

UCCLEP_FN uint64_t* put_signal_of(unsigned char* window, unsigned source) {
  return reinterpret_cast<uint64_t*>(window + put_signal_stride * source);
}

UCCLEP_FN unsigned char* put_signal_row(const PutSignalArgs& args, unsigned destination, unsigned source) {
  const size_t row_bytes = size_t{args.words} * sizeof(uint64_t);
  return args.windows[destination] + put_signal_data(args.ranks) + source * row_bytes;
}

// By the whole block: the row for one destination, then its signal.
template <class Steps>
UCCLEP_FN void put_signal_send(const PutSignalArgs& args, unsigned destination) {
  unsigned char* row = put_signal_row(args, destination, args.rank);
  for (unsigned i = thread_id() * 2; i < args.words; i += block_size() * 2) {
    const uint64_t first = put_signal_word(args.epoch, args.rank, destination, i);
    const uint64_t second = put_signal_word(args.epoch, args.rank, destination, i + 1);
    store16(row + i * sizeof(uint64_t), {static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32),
                                         static_cast<uint32_t>(second), static_cast<uint32_t>(second >> 32)});
  }
  Steps::join();
  if (thread_id() == 0) Steps::announce(put_signal_of(args.windows[destination], args.rank), args.epoch);
}

// By the whole block: waits for the signal of one source and checks its row.
UCCLEP_FN void put_signal_receive(const PutSignalArgs& args, unsigned source, const Wait& wait) {
  bool late = false;
  if (thread_id() == 0) {
    const uint64_t* signal = put_signal_of(args.windows[args.rank], source);
    late = !wait_until(wait, [&] { return load_acquire<Scope::system>(signal) >= args.epoch; });
    if (late) fetch_add_relaxed<Scope::gpu>(args.timed_out, uint64_t{1});
  }
  if (sync_block_or(late)) return;
  const unsigned char* row = put_signal_row(args, args.rank, source);
  uint64_t wrong = 0;
  for (unsigned i = thread_id() * 2; i < args.words; i += block_size() * 2) {
    const vec16 got = load16(row + i * sizeof(uint64_t));
    wrong += (uint64_t{got.y} << 32 | got.x) != put_signal_word(args.epoch, source, args.rank, i);
    wrong += (uint64_t{got.w} << 32 | got.z) != put_signal_word(args.epoch, source, args.rank, i + 1);
  }
  wrong = reduce_add(wrong);
  if (lane_id() == 0 && wrong != 0) fetch_add_relaxed<Scope::gpu>(args.wrong, wrong);
}

// Peers are dealt out to blocks; each rank begins with another one.
template <class Steps>
UCCLEP_FN void put_signal(const PutSignalArgs& args) {
  const Wait wait = begin_wait(args.limit_ns, args.abort_word);
  for (unsigned i = block_id(); i < args.ranks; i += grid_size()) {
    put_signal_send<Steps>(args, (args.rank + i) % args.ranks);
  }
  for (unsigned i = block_id(); i < args.ranks; i += grid_size()) {
    put_signal_receive(args, (args.rank + i) % args.ranks, wait);
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
