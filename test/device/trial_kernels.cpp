// SPDX-License-Identifier: Apache-2.0
// Small kernels, right ones and broken ones. The broken ones wait without a bound: to see that caught is the point.
// Compiled once per wave size.
#include "trial_kernels.hpp"

#include "put_signal_body.hpp"
#include "ucclep/device/ll/headers.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::TrialArgs;

// put_signal with one of its steps left out.
struct RelaxedSignal : PutSignalSteps {
  static UCCLEP_FN void announce(uint64_t* signal, uint64_t epoch) { store_relaxed<Scope::system>(signal, epoch); }
};
struct NoJoin : PutSignalSteps {
  static UCCLEP_FN void join() {}
};

UCCLEP_FN void wait_for(const uint64_t* word, uint64_t value) {
  while (load_acquire<Scope::gpu>(word) != value) pause();
}

UCCLEP_FN unsigned grid_thread() {
  return block_id() * block_size() + thread_id();
}

enum class LeftOut { nothing, wait_loaded, wait_read, wait_written, fence, reuse_fence };

// One warp adds one to every byte of a row in shared memory, on its way from data to copy, where all rows use one slot,
// and publishes it; the other block checks the rows as they come, and publishes that the slot is free.
template <LeftOut left_out>
UCCLEP_FN void relay(const TrialArgs& args) {
  auto* barrier = static_cast<BulkBarrier*>(shared_memory());
  unsigned char* stage = static_cast<unsigned char*>(shared_memory()) + 128;
  if (lane_id() == 0) bulk_barrier_init(barrier);
  sync_warp();
  for (uint32_t row = 0; row < args.rounds; ++row) {
    const size_t at = size_t{row} * args.bytes;
    bulk_load(stage, args.data + at, args.bytes, barrier);
    if (left_out != LeftOut::wait_loaded) bulk_wait_loaded(barrier, row % 2);
    for (uint32_t i = lane_id(); i < args.bytes; i += wave_size) ++stage[i];
    if (left_out == LeftOut::fence) {
      sync_warp();
    } else {
      smem_to_bulk();
    }
    bulk_store(lane_id() == row % wave_size, args.copy, stage, args.bytes);
    if (left_out != LeftOut::wait_read) bulk_wait_read();
    for (uint32_t i = lane_id(); i < args.bytes; i += wave_size) stage[i] = 0;
    if (left_out != LeftOut::wait_written) bulk_wait_written();
    if (lane_id() == wave_size - 1) publish(&args.words[0], row + 1);
    if (lane_id() == 0) wait_for(&args.words[1], row + 1);
    if (left_out == LeftOut::reuse_fence) {
      sync_warp();
    } else {
      acquire_then_bulk();
    }
    if (left_out == LeftOut::wait_loaded) bulk_wait_loaded(barrier, row % 2);
  }
}

UCCLEP_FN void check_relayed(const TrialArgs& args) {
  uint64_t wrong = 0;
  for (uint32_t row = 0; row < args.rounds; ++row) {
    const size_t at = size_t{row} * args.bytes;
    if (lane_id() == 0) {
      while (load_acquire<Scope::system>(&args.words[0]) <= row) pause();
    }
    sync_warp();
    for (uint32_t i = lane_id(); i < args.bytes; i += wave_size) {
      wrong += args.copy[i] != static_cast<unsigned char>(args.data[at + i] + 1);
    }
    sync_warp();
    if (lane_id() == 0) store_release<Scope::gpu>(&args.words[1], uint64_t{row} + 1);
  }
  args.out[lane_id()] = wrong;
}

template <LeftOut left_out>
UCCLEP_FN void relay_and_check(const TrialArgs& args) {
  if (block_id() == 0) {
    relay<left_out>(args);
  } else {
    check_relayed(args);
  }
}

// What a reader of a 128-byte line trusts in: the epoch at its end, one in each 16 bytes, or packets.
constexpr uint32_t trial_line_packets = 8;
UCCLEP_FN uint64_t line_word(uint32_t round, uint32_t word) {
  return uint64_t{round} << 32 | word;
}
struct OneEpochALine {
  static UCCLEP_FN bool has_epoch(uint32_t part) { return part == trial_line_packets - 1; }
  static UCCLEP_FN void store(Packet* to, uint64_t first, uint64_t second) { store_line_part(to, first, second); }
};
struct EpochAPart : OneEpochALine {
  static UCCLEP_FN bool has_epoch(uint32_t) { return true; }
};
struct Packets : EpochAPart {
  static UCCLEP_FN void store(Packet* to, uint64_t first, uint64_t second) { store_packet(to, first, second); }
};

// A lane of one block stores a line in order, again and again, and one of the other block reads it when it trusts it.
template <class Trust>
UCCLEP_FN void send_and_check(const TrialArgs& args) {
  auto* const line = reinterpret_cast<Packet*>(args.data);
  if (lane_id() != 0) return;
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    if (block_id() == 0) {
      for (uint32_t i = 0; i < trial_line_packets; ++i) {
        Trust::store(line + i, line_word(round, 2 * i), Trust::has_epoch(i) ? round : line_word(round, 2 * i + 1));
      }
      wait_for(args.words, round);
      continue;
    }
    for (uint32_t i = 0; i < trial_line_packets; ++i) {
      while (Trust::has_epoch(i) && load_packet(line + i).epoch != round) pause();
    }
    for (uint32_t i = 0; i < trial_line_packets; ++i) {
      const Packet seen = load_packet(line + i);
      args.out[0] += seen.value != line_word(round, 2 * i);
      args.out[0] += !Trust::has_epoch(i) && seen.epoch != line_word(round, 2 * i + 1);
    }
    store_release<Scope::gpu>(args.words, uint64_t{round});
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE

namespace ucclep {

UCCLEP_KERNEL(trial_relaxed_signal, PutSignalArgs) {
  put_signal<RelaxedSignal>(args);
}
UCCLEP_KERNEL(trial_no_join, PutSignalArgs) {
  put_signal<NoJoin>(args);
}

UCCLEP_KERNEL(trial_nothing, TrialArgs) {}

// The order in which lanes came by.
UCCLEP_KERNEL(trial_tickets, TrialArgs) {
  for (uint32_t i = 0; i < args.rounds; ++i) {
    const uint64_t ticket = fetch_add_relaxed<Scope::gpu>(&args.words[0], uint64_t{1});
    args.out[grid_thread()] = args.out[grid_thread()] * 31 + ticket;
    if (i % 3 == 0) pause();
    if (i % 3 == 1) sync_warp();
    if (i % 3 == 2) sync_block();
  }
}

UCCLEP_KERNEL(trial_shfl, TrialArgs) {
  uint64_t value = thread_id();
  for (uint32_t i = 0; i < args.rounds; ++i) value = shfl_xor(value, i % wave_size);
  args.out[grid_thread()] = value;
}

UCCLEP_KERNEL(trial_sync_block, TrialArgs) {
  for (uint32_t i = 0; i < args.rounds; ++i) sync_block();
}

// Each of two loads of one word that stays the same is a pause: without any pause() the other block comes to run.
UCCLEP_KERNEL(trial_polls, TrialArgs) {
  if (block_id() == 0) {
    while (load_acquire<Scope::gpu>(&args.words[0]) == 0) {
    }
    args.out[thread_id()] = 1;
  } else if (thread_id() == 0) {
    store_release<Scope::gpu>(&args.words[0], uint64_t{1});
  }
}

// --- what must be named ---
UCCLEP_KERNEL(trial_barrier_left_out, TrialArgs) {
  if (warp_id() != 1) sync_block();
  args.out[grid_thread()] = 1;
}

UCCLEP_KERNEL(trial_mismatch, TrialArgs) {
  if (lane_id() == 3) {
    args.out[grid_thread()] = ballot(true);
  } else {
    sync_warp();
  }
}

UCCLEP_KERNEL(trial_warp_against_block, TrialArgs) {
  if (lane_id() == 5) {
    sync_warp();
  } else {
    sync_block();
  }
  args.out[grid_thread()] = 1;
}

UCCLEP_KERNEL(trial_throws, TrialArgs) {
  if (thread_id() == 7) throw args.rounds;
}

UCCLEP_KERNEL(trial_spins, TrialArgs) {
  if (block_id() == 1 && thread_id() == wave_size + 2) wait_for(&args.words[5], 1);
  sync_block();
}
UCCLEP_KERNEL(trial_releases, TrialArgs) {
  if (thread_id() == 0) store_release<Scope::gpu>(&args.words[5], uint64_t{1});
}

// Looking together is no progress either.
UCCLEP_KERNEL(trial_warps_spin, TrialArgs) {
  while (ballot(load_acquire<Scope::gpu>(&args.words[lane_id()]) == 0) != 0) pause();
}
UCCLEP_KERNEL(trial_blocks_spin, TrialArgs) {
  while (sync_block_or(load_acquire<Scope::gpu>(&args.words[lane_id()]) == 0)) pause();
}

UCCLEP_KERNEL(trial_deep_stack, TrialArgs) {
  volatile char frame[15200];  // of 16 KiB
  frame[0] = 1;
  sync_warp();
  args.out[grid_thread()] = static_cast<uint64_t>(frame[0]);
}

// --- residency ---
UCCLEP_KERNEL(trial_waits_for_next_block, TrialArgs) {
  if (thread_id() != 0) return;
  if (block_id() + 1 < grid_size()) wait_for(&args.words[block_id() + 1], 1);
  store_release<Scope::gpu>(&args.words[block_id()], uint64_t{1});
}

UCCLEP_KERNEL(trial_waits_for_previous_block, TrialArgs) {
  if (thread_id() != 0) return;
  if (block_id() != 0) wait_for(&args.words[block_id() - 1], 1);
  store_release<Scope::gpu>(&args.words[block_id()], uint64_t{1});
}

// --- lockstep ---
UCCLEP_KERNEL(trial_waits_for_own_warp, TrialArgs) {
  if (lane_id() == 0) wait_for(&args.words[warp_id()], 1);
  if (lane_id() == 1) store_release<Scope::gpu>(&args.words[warp_id()], uint64_t{1});
  sync_warp();
}

UCCLEP_KERNEL(trial_waits_for_other_warp, TrialArgs) {
  if (lane_id() == 0) wait_for(&args.words[warp_id()], 1);
  sync_warp();
  if (lane_id() == 1 && warp_id() == 0) store_release<Scope::gpu>(&args.words[1], uint64_t{1});
}

// --- lines ---
UCCLEP_KERNEL(trial_line, TrialArgs) {
  send_and_check<OneEpochALine>(args);
}
UCCLEP_KERNEL(trial_epoch_a_part, TrialArgs) {
  send_and_check<EpochAPart>(args);
}
UCCLEP_KERNEL(trial_packets, TrialArgs) {
  send_and_check<Packets>(args);
}

// --- bulk copies ---
UCCLEP_KERNEL(trial_unread_store, TrialArgs) {
  bulk_store(lane_id() == 0, args.copy, shared_memory(), args.bytes);
}

UCCLEP_KERNEL(trial_wrong_phase, TrialArgs) {
  auto* barrier = static_cast<BulkBarrier*>(shared_memory());
  if (lane_id() == 0) bulk_barrier_init(barrier);
  sync_warp();
  for (uint32_t i = 0; i < 2; ++i) {
    bulk_load(static_cast<unsigned char*>(shared_memory()) + 128, args.data, args.bytes, barrier);
    bulk_wait_loaded(barrier, 0);
  }
}

UCCLEP_KERNEL(trial_relay, TrialArgs) {
  relay_and_check<LeftOut::nothing>(args);
}
UCCLEP_KERNEL(trial_relay_without_wait_loaded, TrialArgs) {
  relay_and_check<LeftOut::wait_loaded>(args);
}
UCCLEP_KERNEL(trial_relay_without_wait_read, TrialArgs) {
  relay_and_check<LeftOut::wait_read>(args);
}
UCCLEP_KERNEL(trial_relay_without_wait_written, TrialArgs) {
  relay_and_check<LeftOut::wait_written>(args);
}
UCCLEP_KERNEL(trial_relay_without_fence, TrialArgs) {
  relay_and_check<LeftOut::fence>(args);
}
UCCLEP_KERNEL(trial_relay_without_reuse_fence, TrialArgs) {
  relay_and_check<LeftOut::reuse_fence>(args);
}

// One warp asks about `rounds` tokens of rank 0 of one rank. data: its HeaderFacts, and from byte 64 on which tokens
// come. out: the place of a token's row + 1, or 0.
UCCLEP_KERNEL(trial_finds_rows, TrialArgs) {
  ucclEpDeviceGroup group{};
  group.shape.ll_tokens = 64 * 32;
  const Op op{group, Kind::dispatch, Operation::dispatch, 1, 0};
  BlockTableLayout at{};
  at.present = 64;
  for (uint32_t token = 0; token < args.rounds; ++token) {
    ll::ByHeaders way{{reinterpret_cast<char*>(args.data), at}, token};
    const bool found = way.find(op, 0);
    if (lane_id() == 0) args.out[token] = found ? way.place + 1 : 0;
  }
}

}  // namespace ucclep
