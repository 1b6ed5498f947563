// SPDX-License-Identifier: Apache-2.0
// The slots that an operation writes to, and the words that end it (protocol P1-P4).
//
// clang-format off
// | who releases                       | who acquires                  | what is ordered                             |
// |------------------------------------|-------------------------------|---------------------------------------------|
// | slots_free of the reader's next    | slots_free, and of a warp:    | the reader's last read of a slot before     |
// |   operation: publish of consumed   |   load_acquire (system); where|   the writer's next write into it, in bulk  |
// |   (system), after the end of the   |   it stores in bulk also      |   as well                                   |
// |   launch that read it              |   acquire_then_bulk           |                                             |
// | end_exposing: publish of consumed  | end_exposing of the owner:    | the last access to an exposed tensor before |
// |   (system), after the last block's |   load_acquire (system)       |   its owner goes on (ht/zero_copy.hpp)      |
// |   ticket (fetch_add_acq_rel, gpu)  |                               |                                             |
// | end_share: fetch_add_relaxed (gpu) | last_ended of the next launch | nothing: the end of the launch does that    |
// | publish of a row's or chunk's      | wait_word: load_acquire       | the row before its readers                  |
// |   epoch (system)                   |   (system)                    |                                             |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/eviction.hpp"
#include "ucclep/device/protocol/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN const uint64_t* consumed_by(const ucclEpDeviceGroup& group, Kind kind, uint32_t peer) {
  return reinterpret_cast<const uint64_t*>(group.mine + group.layout.consumed_word(group.shape, kind, peer));
}

// Lane verbs: the last operation of a kind that has ended here.
UCCLEP_FN uint64_t ended_word(const ucclEpDeviceGroup& group, Kind kind) {
  return load_relaxed<Scope::gpu>(&group.state->ended[static_cast<uint32_t>(kind)]);
}
UCCLEP_FN uint64_t last_ended(const ucclEpDeviceGroup& group, Kind kind) {
  return EndedWord::seq(ended_word(group, kind));
}
// release: blocks of the same launch may wait for the word (await_end).
template <bool release = false>
UCCLEP_FN void set_ended(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq) {
  uint64_t* const ended = &group.state->ended[static_cast<uint32_t>(kind)];
  if constexpr (release) {
    store_release<Scope::gpu>(ended, EndedWord::of(seq));
  } else {
    store_relaxed<Scope::gpu>(ended, EndedWord::of(seq));
  }
}
// The same of an operation, whose last number it is.
template <bool release = false>
UCCLEP_FN void end_at(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq) {
  uint64_t* const skipped = &group.state->skipped[static_cast<uint32_t>(kind)];
  const uint64_t more = seq - last_ended(group, kind) - 1;
  if (more != 0) store_relaxed<Scope::gpu>(skipped, load_relaxed<Scope::gpu>(skipped) + more);
  set_ended<release>(group, kind, seq);
}

// What every block asks for first, all at once: one latency of the memory, not three. Words never go back, so what was
// enough early still is.
struct OpState {
  uint64_t ended;     // EndedWord of the operation before, as it came: who shifts it waits for it
  uint64_t consumed;  // thread p, or lane p of a warp that asks for itself: by peer p; 0 if that is asked later
  uint32_t abort;

  UCCLEP_FN uint64_t last() const { return EndedWord::seq(ended); }

  static UCCLEP_FN OpState load(const ucclEpDeviceGroup& group, Kind kind) {
    OpState op_state{ended_word(group, kind), 0, load_relaxed<Scope::system>(group.abort_word)};
    if (thread_id() < group.shape.ranks) {
      op_state.consumed = load_acquire<Scope::system>(consumed_by(group, kind, thread_id()));
    }
    return op_state;
  }
};

// The same for a warp that asks about its slots later (slots_free_of_warp): nothing here waits for another load.
UCCLEP_FN OpState load_op_state(const ucclEpDeviceGroup& group, Kind kind) {
  return {ended_word(group, kind), 0, load_relaxed<Scope::system>(group.abort_word)};
}

// Warp verb, behind all else that the warp asks for early: the same, and which slots are free, as is known now. An
// acquire is waited for at once, so here ends what a warp can ask for in one latency.
UCCLEP_FN OpState load_op_state_and_slots(const ucclEpDeviceGroup& group, Kind kind) {
  OpState op_state = load_op_state(group, kind);
  if (lane_id() < group.shape.ranks) {
    op_state.consumed = load_acquire<Scope::system>(consumed_by(group, kind, lane_id()));
  }
  return op_state;
}

UCCLEP_FN Op next_operation(const ucclEpDeviceGroup& group, Kind kind, Operation name, const OpState& op_state) {
  const uint64_t seq = op_state.last() + 1;
  return {group, kind, name, seq, group.shape.slot_of(seq)};
}

// Threads that share out peers by number.
struct ThreadShare {
  uint32_t first, step;
};

UCCLEP_COLD_FN void publish_to_windows(char* const* windows, uint32_t ranks, uint64_t word, uint64_t value,
                                       ThreadShare share) {
  for (uint32_t p = share.first; p < ranks; p += share.step) {
    char* const window = windows[p];
    if (window != nullptr) publish(reinterpret_cast<uint64_t*>(window + word), value);
  }
}

// Lane verb: the slots of the kind of which only the send phase has ended, a bit for each.
UCCLEP_FN uint32_t pending_slots(const Op& op) {
  return load_relaxed<Scope::gpu>(&op.group.state->pending[static_cast<uint32_t>(op.kind)]);
}

// Lane verb: the last operation up to which this rank has finished reading all; `last` is the last that has ended, or
// its send phase. Not more than N - 1 follow the oldest that is pending: each slot of the ring is one of these. Turned
// so that the oldest of them comes first, with a bit behind them all, the lowest bit is the first that was not read.
UCCLEP_FN uint64_t last_read(const Op& op, uint64_t last) {
  const uint32_t n = op.group.shape.in_flight, pending = pending_slots(op);
  const uint32_t turned = (pending | pending << n) >> op.group.shape.slot_of(last + 1) | 1u << n;
  return last - n + first_lane(turned);
}

// Verb of those threads: publishes to every peer whose window is mapped here up to which operation of the kind this
// rank has finished reading; `last` as above.
UCCLEP_FN void publish_consumed(const Op& op, uint64_t last, ThreadShare share) {
  const ucclEpDeviceGroup& group = op.group;
  publish_to_windows(group.windows, group.shape.ranks, group.layout.consumed_word(group.shape, op.kind, op.me()),
                     last_read(op, last), share);
}
// Verb of a block's threads.
UCCLEP_FN void publish_consumed(const Op& op, uint64_t last) {
  publish_consumed(op, last, {thread_id(), block_size()});
}

// The block that publishes what was consumed: one that receives in LL operations, so it has time to spare.
UCCLEP_FN bool publishes_consumed() {
  return block_id() == grid_size() * 3 / 4;
}

// Lane verb: what slots_free waits for, of a peer that stores the word itself. Of others: protocol/by_network.hpp.
struct ConsumedWord {
  static constexpr bool masks = false;  // true: in a group with masks, of those who are not lost
  static constexpr bool networked = false;
  UCCLEP_FN uint64_t operator()(const Op& op, uint32_t peer) const {
    return load_acquire<Scope::system>(consumed_by(op.group, op.kind, peer));
  }
};

// The same in kernels of groups that may have masks. Others do without: the call alone costs a kernel registers.
struct ConsumedMasked : ConsumedWord {
  static constexpr bool masks = true;
};

// What a peer must have consumed before this operation writes to its slot. 0: nothing, the slot is new.
UCCLEP_FN uint64_t consumed_needed(const Op& op) {
  const GroupShape& shape = reload(op.group).shape;
  return op.seq > shape.in_flight ? op.seq - shape.in_flight : 0;
}

// Block verb, before anything is sent: publishes that the operation before was read, and waits until every peer
// has finished with the slot that this operation is going to use (P1). A peer cannot be two operations ahead of what it
// was sent, as it has needed this rank's rows of the one between: so nobody waits for what is published only now. What
// a peer read there before it said so is ordered before what this block writes there now; bulk: also before what it
// writes in bulk. False also after a fatal error: what the operation before left behind may be half done.
template <bool bulk = true, class Consumed = ConsumedWord>
UCCLEP_FN bool slots_free(const Op& op, const OpState& op_state, Consumed consumed, bool publishes) {
  const bool marks = block_id() == 0 && thread_id() == 0;
  if (marks) mark(op, Mark::begin);
  // Also where all leave since a rank is lost: a block may be resident only then, and the second run publishes nothing.
  const bool sound = op_state.abort == 0 || op_state.abort == leave_now;
  if (publishes && sound && op_state.last() != 0) publish_consumed(op, op_state.last());
  const uint64_t needed = consumed_needed(op);
  bool ok = op_state.abort == 0;
  bool waits = needed != 0;
  if constexpr (Consumed::masks) {
    if (op.group.masks != nullptr) {
      ok = slots_free_masked<Consumed::networked>(reload(op.group), op.kind, needed);
      waits = false;
    }
  }
  if (waits) {
    for (uint32_t p = thread_id(); p < op.ranks() && ok; p += block_size()) {
      if (p == thread_id() && op_state.consumed >= needed) continue;
      ok = wait_peer(op, Phase::consumed, p, [&] { return consumed(op, p) >= needed; });
    }
  }
  ok = every_thread(ok);
  if constexpr (bulk) acquire_then_bulk();
  if (marks) mark(op, Mark::slots_free);
  return ok;
}
template <bool bulk = true, class Consumed = ConsumedWord>
UCCLEP_FN bool slots_free(const Op& op, const OpState& op_state, Consumed consumed = {}) {
  return slots_free<bulk>(op, op_state, consumed, publishes_consumed());
}

// Warp verb, where warps ask for themselves, as below: one, which likely has nothing else to do, publishes that
// the operation before was read.
UCCLEP_FN void publish_read(const Op& op, const OpState& op_state) {
  if (!publishes_consumed() || warp_id() != block::warps() - 1) return;
  if (op_state.last() != 0) publish_consumed(op, op_state.last(), {lane_id(), wave_size});
}

// Warp verb: slots_free for a warp alone that stores lines, in a group without masks. It publishes nothing.
UCCLEP_FN bool slots_free_of_warp(const Op& op, const OpState& op_state) {
  const uint64_t needed = consumed_needed(op);
  bool ok = op_state.abort == 0;
  for (uint32_t p = lane_id(); needed != 0 && p < op.ranks() && ok; p += wave_size) {
    if (p == lane_id() && op_state.consumed >= needed) continue;
    ok = wait_peer(op, Phase::consumed, p,
                   [&] { return load_acquire<Scope::system>(consumed_by(reload(op.group), op.kind, p)) >= needed; });
  }
  ok = every_lane(ok);
  sync_warp();  // what a lane has acquired is ordered before what all of them store
  return ok;
}

// Verb of one thread of every block, after the block's last access for an operation: true in the last block out if none
// gave up. Blocks and those that gave up are counted in one word of the kind. ordered: what all blocks did is ordered
// before what follows here; otherwise the end of the launch does that for the next.
UCCLEP_FN bool leave(const ucclEpDeviceGroup& group, Kind kind, bool ok, bool ordered) {
  constexpr uint64_t gave_up = uint64_t{1} << 32;
  GroupState* const state = group.state;
  uint64_t* const exited = &state->exited[static_cast<uint32_t>(kind)];
  const uint64_t mine = ok ? 1 : 1 + gave_up;
  const uint64_t before =
      ordered ? fetch_add_acq_rel<Scope::gpu>(exited, mine) : fetch_add_relaxed<Scope::gpu>(exited, mine);
  const uint64_t out = before + mine;
  if (static_cast<uint32_t>(out) != grid_size()) return false;
  store_relaxed<Scope::gpu>(exited, uint64_t{0});
  UCCLEP_UNROLL
  for (TurnWord& turns : state->turns[static_cast<uint32_t>(kind)]) {
    UCCLEP_UNROLL
    for (uint32_t& taken : turns.taken) store_relaxed<Scope::gpu>(&taken, 0u);
  }
  return out < gave_up;
}

// Block verb, after the block's last access: none of its warps has given up. One that has may have stores under way;
// one is enough: with masks the operation is repaired.
UCCLEP_FN bool all_done(bool ok) {
  if (!ok) bulk_wait_written();
  return every_thread(ok);
}

// Block verb, last thing of an operation, in its last round: the last block out advances the sequence, and gets true;
// ordered as above. After a fatal error nothing moves: the communicator is dead.
UCCLEP_FN bool end_operation(const Op& op, bool ok, bool ordered = false) {
  ok = all_done(ok);
  bool last = false;
  if (thread_id() == 0) {
    last = leave(op.group, op.kind, ok, ordered);
    if (last) {
      mark(op, Mark::end);
      end_at(op.group, op.kind, op.seq);
    }
  }
  return ordered && sync_block_or(last);
}

// The same in a kernel of groups without masks, where nobody is to know which block was the last, but for a trace: a
// block that gave up never adds its share. Nothing is waited for.
UCCLEP_FN void end_share(const Op& op, bool ok) {
  if (!all_done(ok) || thread_id() != 0) return;
  uint64_t* const word = &op.group.state->ended[static_cast<uint32_t>(op.kind)];
  const uint64_t share = EndedWord::share(block_id(), grid_size());
  let_next_begin();
  TraceEntry* const entries = op.group.trace;
  if (entries == nullptr) {
    fetch_add_relaxed<Scope::gpu>(word, share);
    return;
  }
  const uint64_t number = number_of(op);  // as long as the operation has not ended
  if (EndedWord::seq(fetch_add_relaxed<Scope::gpu>(word, share) + share) == op.seq) {
    note_mark(entries + static_cast<uint32_t>(op.kind) * trace_depth, number, Mark::end);
  }
}

// The same for an operation in which ranks may expose tensors of their callers (P14): what was read here is published
// at once. exposed: peers read or write one of this rank; the operation ends when all of them have said that they have
// finished.
UCCLEP_FN void end_exposing(const Op& op, bool ok, bool exposed) {
  if (!end_operation(op, ok, true)) return;
  publish_consumed(op, op.seq);
  if (!exposed) return;
  sync_block();  // all have published before any waits: the peers do the same
  for (uint32_t p = thread_id(); p < op.ranks(); p += block_size()) {
    const uint64_t* word = consumed_by(op.group, op.kind, p);
    if (!wait_peer(op, Phase::consumed, p, [&] { return load_acquire<Scope::system>(word) >= op.seq; })) return;
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
