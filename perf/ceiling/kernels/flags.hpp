// SPDX-License-Identifier: Apache-2.0
// Ranks that meet before a measurement, and how long a flag takes from one GPU to another.
#pragma once
#include "ceiling/kernels/arguments.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN uint64_t* flag_of(const CeilingFlagArgs& args, uint32_t owner, uint32_t writer) {
  return reinterpret_cast<uint64_t*>(args.flags[owner] + size_t{writer} * ceiling_flag_stride);
}

// By one warp. The delay lets the host enqueue what is behind, so that no rank waits for its host after the meeting.
UCCLEP_FN void meet_ranks(const CeilingFlagArgs& args) {
  const uint64_t begin = clock_ns();
  while (clock_ns() - begin < args.delay_ns) pause();
  const bool mine = lane_id() < args.ranks;
  if (mine) publish(flag_of(args, lane_id(), args.rank), args.epoch);
  sync_warp();  // nobody waits before all have told
  if (!mine) return;
  const Wait wait = begin_wait(args.limit.ns, args.limit.abort_word);
  const uint64_t* flag = flag_of(args, args.rank, lane_id());
  if (!wait_until(wait, [&] { return load_acquire<Scope::system>(flag) >= args.epoch; })) {
    fetch_add_relaxed<Scope::gpu>(args.limit.late, 1u);
  }
}

// One word, with an order for what was written before it, and without.
struct OrderedFlag {
  static UCCLEP_FN void set(uint64_t* flag, uint64_t value) { publish(flag, value); }
  static UCCLEP_FN uint64_t get(const uint64_t* flag) { return load_acquire<Scope::system>(flag); }
};
struct BareFlag {
  static UCCLEP_FN void set(uint64_t* flag, uint64_t value) { store_relaxed<Scope::system>(flag, value); }
  static UCCLEP_FN uint64_t get(const uint64_t* flag) { return load_relaxed<Scope::system>(flag); }
};

// A wait without the pauses of wait_until, which are as long as a flag needs for a part of its way.
template <class Flag>
UCCLEP_FN bool spin_for(const uint64_t* flag, uint64_t value, const Wait& wait) {
  for (uint32_t polls = 1; Flag::get(flag) < value; ++polls) {
    if (polls % 1024 == 0 && (aborted(wait) || timed_out(wait))) return false;
  }
  return true;
}

// Rank 0 and rank 1 pass a flag there and back, by one lane each.
template <class Flag>
UCCLEP_FN void pass_flag(const CeilingFlagArgs& args) {
  if (args.rank > 1 || thread_id() != 0) return;
  const Wait wait = begin_wait(args.limit.ns, args.limit.abort_word);
  uint64_t* theirs = flag_of(args, 1 - args.rank, args.rank);
  const uint64_t* mine = flag_of(args, args.rank, 1 - args.rank);
  for (uint64_t value = args.epoch; value < args.epoch + args.rounds; ++value) {
    if (args.rank == 0) Flag::set(theirs, value);
    if (!spin_for<Flag>(mine, value, wait)) {
      fetch_add_relaxed<Scope::gpu>(args.limit.late, 1u);
      return;
    }
    if (args.rank == 1) Flag::set(theirs, value);
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
