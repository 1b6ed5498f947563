// SPDX-License-Identifier: Apache-2.0
// An operation between the ranks: its sequence number, its bounded waits, the slots that it writes to and the words
// that end it (protocol P1-P4). Its headers: header.hpp.
//
// clang-format off
// | who releases                       | who acquires                  | what is ordered                         |
// |------------------------------------|-------------------------------|-----------------------------------------|
// | slots_free of the reader's next    | slots_free, and of a warp:    | the reader's last read of a slot before |
// |   operation: publish of consumed   |   load_acquire (system)       |   the writer's next write into it       |
// |   (system), after the end of the   |                               |                                         |
// |   launch that read it              |                               |                                         |
// | end_lending: publish of consumed   | end_lending of the lender:    | the last access to a lent tensor before |
// |   (system), after the last block's |   load_acquire (system)       |   its owner goes on (ht_lease.hpp)      |
// |   ticket (fetch_add_acq_rel, gpu)  |                               |                                         |
// | end_share: fetch_add_relaxed (gpu) | last_ended of the next launch | nothing: the end of the launch does that |
// | publish of a row's or chunk's      | wait_word: load_acquire       | the row before its readers              |
// |   epoch (system)                   |   (system)                    |                                         |
// clang-format on
#pragma once
#include "ucclep/device/layout/masks.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Peers in an order of this rank's own, so that not everybody talks to the same rank at once.
UCCLEP_FN uint32_t rotated(const ucclEpDeviceGroup& group, uint32_t i) {
  const uint32_t ranks = group.shape.ranks, rank = static_cast<uint32_t>(group.rank) + i;
  return rank < ranks ? rank : rank - ranks;
}

struct Op {
  const ucclEpDeviceGroup& group;
  Kind kind;
  Operation name;
  uint64_t seq;
  Parked slot;  // of the rings: seq modulo in_flight

  UCCLEP_FN uint32_t ranks() const { return group.shape.ranks; }
  UCCLEP_FN uint32_t me() const { return static_cast<uint32_t>(group.rank); }
  UCCLEP_FN char* window(uint32_t rank) const { return group.windows[rank]; }
  UCCLEP_FN char* mine() const { return group.mine; }
  UCCLEP_FN bool has_window(uint32_t rank) const { return group.windows[rank] != nullptr; }  // else: by the network
  UCCLEP_FN uint32_t rotated(uint32_t i) const { return ucclep::rotated(group, i); }
  // The same operation with arguments from read_again.
  UCCLEP_FN Op with(const ucclEpDeviceGroup& same) const { return {same, kind, name, seq, slot}; }
};

// Warps of the whole grid share out work by index. Neighbours are on different SMs, so that little work uses them all.
UCCLEP_FN uint32_t grid_warp() {
  return warp_id() * grid_size() + block_id();
}
// Lists are shared out one after the other: the warp that is next in turn begins. With `first` from the last list,
//   for (item = first; item < items; item += grid_warps()) { .. }
//   first = item - items;
// goes on in turn, without a division.
UCCLEP_FN uint32_t grid_warps() {
  return grid_size() * (block_size() / wave_size);
}

UCCLEP_FN ErrorRecord record_of(const Op& op, ucclEpResult_t code, Phase phase, int32_t peer) {
  ErrorRecord record{};
  record.code = code;
  record.operation = op.name;
  record.phase = phase;
  record.peer = peer;
  record.epoch = op.seq;
  return record;
}

// Whose wait it was, in few words.
struct Waiter {
  uint64_t seq, start_ns;
  Operation name;
  Phase phase;
  uint32_t peer;
};

// The peer is lost, or the communicator.
UCCLEP_COLD_FN void report_timeout(DeviceErrors* errors, uint32_t* abort_word, Waiter waiter) {
  if (note_lost(abort_word, waiter.name, waiter.seq, waiter.peer, static_cast<uint32_t>(waiter.phase))) return;
  ErrorRecord record{};
  record.code = ucclEpTimeout;
  record.operation = waiter.name;
  record.phase = waiter.phase;
  record.peer = static_cast<int32_t>(waiter.peer);
  record.epoch = waiter.seq;
  record.waited_ns = clock_ns() - waiter.start_ns;
  report_fatal(errors, abort_word, record);
}

UCCLEP_FN void report_timeout(const Op& op, Phase phase, uint32_t peer, const Wait& wait) {
  report_timeout(op.group.errors, op.group.abort_word, {op.seq, wait.start_ns, op.name, phase, peer});
}

constexpr unsigned polls_per_check = 32;  // of the clock and the abort word

// Lane verb: waits until arrived() is true. When the time is up, the record names the peer and everybody leaves.
template <class Predicate>
UCCLEP_FN bool wait_peer(const Op& op, Phase phase, uint32_t peer, Predicate&& arrived) {
  Wait wait{};
  for (unsigned polls = 0; !arrived(); ++polls) {
    if (polls == 0) wait = begin_wait(op.group.timeout_ns, op.group.abort_word);
    pause();
    if (polls % polls_per_check != polls_per_check - 1) continue;
    if (aborted(wait)) return false;
    if (!timed_out(wait)) continue;
    report_timeout(op, phase, peer, wait);
    return false;
  }
  return true;
}

// Warp verb: the same with a predicate that all lanes evaluate together and whose answer is the same for all. It may
// say another peer, too.
template <class Predicate>
UCCLEP_FN bool wait_peer_warp(const Op& op, Phase phase, const uint32_t& peer, Predicate&& arrived) {
  Wait wait{};
  for (unsigned polls = 0; !arrived(); ++polls) {
    if (polls == 0) wait = begin_wait(op.group.timeout_ns, op.group.abort_word);
    pause();
    if (polls % polls_per_check != polls_per_check - 1) continue;
    // Lane 0 decides for all: clocks differ from lane to lane.
    uint32_t verdict = 0;
    if (lane_id() == 0) verdict = aborted(wait) ? 1 : timed_out(wait) ? 2 : 0;
    verdict = broadcast(verdict, 0);
    if (verdict == 0) continue;
    if (verdict == 2 && lane_id() == 0) report_timeout(op, phase, peer, wait);
    return false;
  }
  return true;
}

// Lane verb: an epoch word of this operation.
UCCLEP_FN bool wait_word(const Op& op, Phase phase, uint32_t peer, const char* word) {
  const auto* epoch = reinterpret_cast<const uint64_t*>(word);
  return wait_peer(op, phase, peer, [&] { return load_acquire<Scope::system>(epoch) == op.seq; });
}

// Warp verb: every lane says whether its own wait succeeded; all get the same answer.
UCCLEP_FN bool every_lane(bool ok) {
  return ballot(!ok) == 0;
}

// Block verb: the same for a block.
UCCLEP_FN bool every_thread(bool ok) {
  return !sync_block_or(!ok);
}

// A wait for other blocks of the rank. They may be waiting for a peer meanwhile, and it is for them to say that it did
// not come: so blocks wait longer for each other than for peers, and leave early by the abort word, the group's or
// another.
constexpr uint64_t block_patience_ns = 1000000000;
UCCLEP_FN Wait begin_wait_for_blocks(const Op& op, const uint32_t* abort_word) {
  return begin_wait(2 * op.group.timeout_ns + block_patience_ns, abort_word);
}
// The same at a barrier of a user's kernel between two operations. With masks no lost peer ends it: all blocks go on,
// or none.
UCCLEP_FN Wait begin_wait_for_blocks(const ucclEpDeviceGroup& group) {
  const uint32_t* const word = group.masks != nullptr ? &group.masks->never : group.abort_word;
  return begin_wait(2 * group.timeout_ns + block_patience_ns, word);
}
// Verb of one thread, after such a wait.
UCCLEP_FN void report_blocks(const Op& op, const Wait& wait) {
  if (aborted(wait)) return;
  report_fatal(op.group.errors, op.group.abort_word, record_of(op, ucclEpInternalError, Phase::grid, -1));
}

// Grid verb.
UCCLEP_FN bool sync_grid(const Op& op, const uint32_t* abort_word) {
  const Wait wait = begin_wait_for_blocks(op, abort_word);
  if (grid_sync(&op.group.state->barrier, wait)) return true;
  if (thread_id() == 0) report_blocks(op, wait);
  return false;
}

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
UCCLEP_FN void set_ended(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq) {
  store_relaxed<Scope::gpu>(&group.state->ended[static_cast<uint32_t>(kind)], EndedWord::of(seq));
}

// What every block asks for first, all at once: one latency of the memory, not three. Words never go back, so what was
// enough early still is.
struct Opening {
  uint64_t ended;     // EndedWord of the operation before, as it came: who shifts it waits for it
  uint64_t consumed;  // thread p, or lane p of a warp that asks for itself: by peer p; 0 if that is asked later
  uint32_t abort;

  UCCLEP_FN uint64_t last() const { return EndedWord::seq(ended); }

  static UCCLEP_FN Opening of(const ucclEpDeviceGroup& group, Kind kind) {
    Opening opening{ended_word(group, kind), 0, load_relaxed<Scope::system>(group.abort_word)};
    if (thread_id() < group.shape.ranks) {
      opening.consumed = load_acquire<Scope::system>(consumed_by(group, kind, thread_id()));
    }
    return opening;
  }
};

// The same for a warp that asks about its slots later (slots_free_of_warp): nothing here waits for another load.
UCCLEP_FN Opening opening_of_warp(const ucclEpDeviceGroup& group, Kind kind) {
  return {ended_word(group, kind), 0, load_relaxed<Scope::system>(group.abort_word)};
}

// Warp verb, behind all else that the warp asks for early: the same, and which slots are free, as is known now. An
// acquire is waited for at once, so here ends what a warp can ask for in one latency.
UCCLEP_FN Opening opening_with_slots(const ucclEpDeviceGroup& group, Kind kind) {
  Opening opening = opening_of_warp(group, kind);
  if (lane_id() < group.shape.ranks) {
    opening.consumed = load_acquire<Scope::system>(consumed_by(group, kind, lane_id()));
  }
  return opening;
}

// Verb of one thread of a block.
UCCLEP_FN void mark(const Op& op, Mark what) {
  TraceEntry* const entries = op.group.trace;
  if (entries != nullptr) note_mark(entries + static_cast<uint32_t>(op.kind) * trace_depth, op.seq, what);
}

UCCLEP_FN Op next_operation(const ucclEpDeviceGroup& group, Kind kind, Operation name, const Opening& opening) {
  const uint64_t seq = opening.last() + 1;
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

// Verb of those threads: tells every peer whose window is mapped here that this rank has finished reading operation
// `seq` of the kind.
UCCLEP_FN void tell_consumed(const Op& op, uint64_t seq, ThreadShare share) {
  const ucclEpDeviceGroup& group = op.group;
  publish_to_windows(group.windows, group.shape.ranks, group.layout.consumed_word(group.shape, op.kind, op.me()), seq,
                     share);
}
// Verb of a block's threads.
UCCLEP_FN void tell_consumed(const Op& op, uint64_t seq) {
  tell_consumed(op, seq, {thread_id(), block_size()});
}

// The block that tells peers what was consumed: one that LL operations have receive, so with time to spare.
UCCLEP_FN bool tells_consumed() {
  return block_id() == grid_size() * 3 / 4;
}

// Lane verb: what slots_free waits for, of a peer that stores the word itself. Of others: network.hpp.
struct ConsumedWord {
  static constexpr bool masks = false;  // true: in a group with masks, of those who are not lost
  static constexpr bool networked = false;
  UCCLEP_FN uint64_t operator()(const Op& op, uint32_t peer) const {
    return load_acquire<Scope::system>(consumed_by(op.group, op.kind, peer));
  }
};

// The same in kernels of groups that may have masks. Others do without: the call alone costs a kernel registers.
struct ConsumedOfLiving : ConsumedWord {
  static constexpr bool masks = true;
};

// What a peer must have consumed before this operation writes to its slot. 0: nothing, the slot is new.
UCCLEP_FN uint64_t consumed_needed(const Op& op) {
  const GroupShape& shape = read_again(op.group).shape;
  return op.seq > shape.in_flight ? op.seq - shape.in_flight : 0;
}

// Block verb, before anything is sent: tells the peers that the operation before was read, and waits until every peer
// has finished with the slot that this operation is going to use (P1). A peer cannot be two operations ahead of what it
// was told, as it has needed this rank's rows of the one between: so nobody waits for what is told only now. What a
// peer read there before it said so is ordered before what this block writes there now; before bulk stores each thread
// also has to acquire_then_bulk. False also after a fatal error: what the operation before left behind may be half
// done.
template <class Consumed = ConsumedWord>
UCCLEP_FN bool slots_free(const Op& op, const Opening& opening, Consumed consumed = {}) {
  const bool marks = block_id() == 0 && thread_id() == 0;
  if (marks) mark(op, Mark::begin);
  if (tells_consumed() && opening.abort == 0 && opening.last() != 0) tell_consumed(op, opening.last());
  const uint64_t needed = consumed_needed(op);
  bool ok = opening.abort == 0;
  bool waits = needed != 0;
  if constexpr (Consumed::masks) {
    if (op.group.masks != nullptr) {
      ok = slots_free_of_living<Consumed::networked>(read_again(op.group), op.kind, needed);
      waits = false;
    }
  }
  if (waits) {
    for (uint32_t p = thread_id(); p < op.ranks() && ok; p += block_size()) {
      if (p == thread_id() && opening.consumed >= needed) continue;
      ok = wait_peer(op, Phase::consumed, p, [&] { return consumed(op, p) >= needed; });
    }
  }
  ok = every_thread(ok);
  if (marks) mark(op, Mark::slots_free);
  return ok;
}

// Warp verb, where warps ask for themselves, as below: one, which likely has nothing else to do, tells the peers that
// the operation before was read.
UCCLEP_FN void tell_read(const Op& op, const Opening& opening) {
  if (!tells_consumed() || warp_id() != block::warps() - 1) return;
  if (opening.last() != 0) tell_consumed(op, opening.last(), {lane_id(), wave_size});
}

// Warp verb: slots_free for a warp alone, in a group without masks. Nobody is told.
UCCLEP_FN bool slots_free_of_warp(const Op& op, const Opening& opening) {
  const uint64_t needed = consumed_needed(op);
  bool ok = opening.abort == 0;
  for (uint32_t p = lane_id(); needed != 0 && p < op.ranks() && ok; p += wave_size) {
    if (p == lane_id() && opening.consumed >= needed) continue;
    ok = wait_peer(op, Phase::consumed, p, [&] {
      return load_acquire<Scope::system>(consumed_by(read_again(op.group), op.kind, p)) >= needed;
    });
  }
  ok = every_lane(ok);
  sync_warp();  // what a lane has acquired is ordered before what all of them store
  return ok;
}

// Verb of one thread of every block, after the block's last access: true in the last block out if none gave up. Blocks
// and those that gave up are counted in one word. ordered: what all blocks did is ordered before what follows here;
// otherwise the end of the launch does that for the next.
UCCLEP_FN bool leave(GroupState* state, bool ok, bool ordered) {
  constexpr uint64_t gave_up = uint64_t{1} << 32;
  const uint64_t mine = ok ? 1 : 1 + gave_up;
  const uint64_t before = ordered ? fetch_add_acq_rel<Scope::gpu>(&state->exited, mine)
                                  : fetch_add_relaxed<Scope::gpu>(&state->exited, mine);
  const uint64_t out = before + mine;
  if (static_cast<uint32_t>(out) != grid_size()) return false;
  store_relaxed<Scope::gpu>(&state->exited, uint64_t{0});
  return out < gave_up;
}

// Block verb, after the block's last access: none of its warps has given up. One that has may have stores under way;
// one is enough: with masks the operation is mended.
UCCLEP_FN bool all_done(bool ok) {
  if (!ok) bulk_wait_written();
  return every_thread(ok);
}

// Block verb, last thing of an operation: the last block out advances the sequence, and is told so; ordered as above.
// After a fatal error nothing moves: the communicator is dead.
UCCLEP_FN bool end_operation(const Op& op, bool ok, bool ordered = false) {
  ok = all_done(ok);
  bool last = false;
  if (thread_id() == 0) {
    last = leave(op.group.state, ok, ordered);
    if (last) {
      mark(op, Mark::end);
      set_ended(op.group, op.kind, op.seq);
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
  if (op.group.trace == nullptr) {
    fetch_add_relaxed<Scope::gpu>(word, share);
  } else if (EndedWord::seq(fetch_add_relaxed<Scope::gpu>(word, share) + share) == op.seq) {
    mark(op, Mark::end);
  }
}

// The same for an operation in which ranks may lend tensors of their callers (P14): what was read here is told at once.
// lent: peers read or write one of this rank; the operation ends when all of them have said that they have finished.
UCCLEP_FN void end_lending(const Op& op, bool ok, bool lent) {
  if (!end_operation(op, ok, true)) return;
  tell_consumed(op, op.seq);
  if (!lent) return;
  sync_block();  // all have told before any waits: the peers do the same
  for (uint32_t p = thread_id(); p < op.ranks(); p += block_size()) {
    const uint64_t* word = consumed_by(op.group, op.kind, p);
    if (!wait_peer(op, Phase::consumed, p, [&] { return load_acquire<Scope::system>(word) >= op.seq; })) return;
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
