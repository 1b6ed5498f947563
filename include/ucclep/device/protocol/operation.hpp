// SPDX-License-Identifier: Apache-2.0
// An operation between the ranks: its sequence number, its error records and its bounded waits (protocol P4). Its
// slots: slots.hpp. Its headers: protocol/header.hpp.
#pragma once
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/protocol/record.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Peers in an order of this rank's own, so that not everybody talks to the same rank at once.
UCCLEP_FN uint32_t rotated(const ucclEpDeviceGroup& group, uint32_t i) {
  const uint32_t ranks = group.shape.ranks, rank = static_cast<uint32_t>(group.rank) + i;
  return rank < ranks ? rank : rank - ranks;
}

// What an operation may meet, as far as the compiler knows where it reads this: kernels of users serve every group.
struct MayMeet {
  bool network = true, masks = true, bulk = true;
};

struct Op {
  const ucclEpDeviceGroup& group;
  Kind kind;
  Operation name;
  uint64_t seq;          // of HT: of its round; rounds take one number after the other
  WarpUniform slot;      // of the rings: seq modulo in_flight
  WarpUniform round{0};  // of HT
  MayMeet may = {};

  UCCLEP_FN uint32_t ranks() const { return group.shape.ranks; }
  UCCLEP_FN uint32_t me() const { return static_cast<uint32_t>(group.rank); }
  UCCLEP_FN char* window(uint32_t rank) const { return group.windows[rank]; }
  UCCLEP_FN char* mine() const { return group.mine; }
  UCCLEP_FN bool networked() const { return may.network && group.network != nullptr; }
  UCCLEP_FN bool masked() const { return may.masks && group.masks != nullptr; }
  // Else only the network reaches the rank.
  UCCLEP_FN bool has_window(uint32_t rank) const { return !may.network || group.windows[rank] != nullptr; }
  UCCLEP_FN uint32_t rotated(uint32_t i) const { return ucclep::rotated(group, i); }
  // The same operation with arguments from reload.
  UCCLEP_FN Op with(const ucclEpDeviceGroup& same) const { return {same, kind, name, seq, slot, round, may}; }
  // A round of the same operation.
  UCCLEP_FN Op in_round(uint32_t index) const {
    const uint64_t number = seq - round + index;
    return {group, kind, name, number, group.shape.slot_of(number), index, may};
  }
};

// Lane verb: the number of an operation that has not ended, among those of its kind; state: of its group.
UCCLEP_FN uint64_t number_of(GroupState* state, Kind kind, uint32_t slot) {
  const auto k = static_cast<uint32_t>(kind);
  const bool pending = (load_relaxed<Scope::gpu>(&state->pending[k]) >> slot & 1) != 0;
  if (pending) return load_relaxed<Scope::gpu>(&state->sent_as[k][slot]);
  return EndedWord::seq(load_relaxed<Scope::gpu>(&state->ended[k])) + 1 - load_relaxed<Scope::gpu>(&state->skipped[k]);
}
UCCLEP_FN uint64_t number_of(const Op& op) {
  return number_of(op.group.state, op.kind, op.slot);
}

UCCLEP_FN bool is_masked(const Op& op, uint32_t rank) {
  return op.may.masks && is_masked(op.group.masks, rank);
}

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
  record.epoch = number_of(op);
  return record;
}

// Whose wait it was, in few words.
struct Waiter {
  uint64_t seq, start_ns;
  GroupState* state;
  uint32_t slot;
  Operation name;
  Phase phase;
  uint32_t peer;

  static UCCLEP_FN Waiter of(const Op& op, Phase phase, uint32_t peer, uint64_t start_ns) {
    return {op.seq, start_ns, op.group.state, op.slot, op.name, phase, peer};
  }
};

// The peer is lost, or the communicator.
UCCLEP_COLD_FN void report_timeout(DeviceErrors* errors, uint32_t* abort_word, Waiter waiter) {
  if (note_lost(abort_word, waiter.name, waiter.seq, waiter.peer, static_cast<uint32_t>(waiter.phase))) return;
  ErrorRecord record{};
  record.code = ucclEpTimeout;
  record.operation = waiter.name;
  record.phase = waiter.phase;
  record.peer = static_cast<int32_t>(waiter.peer);
  record.epoch = number_of(waiter.state, static_cast<Kind>(kind_of(waiter.name)), waiter.slot);
  record.waited_ns = clock_ns() - waiter.start_ns;
  report_fatal(errors, abort_word, record);
}

UCCLEP_FN void report_timeout(const Op& op, Phase phase, uint32_t peer, const Wait& wait) {
  report_timeout(op.group.errors, op.group.abort_word, Waiter::of(op, phase, peer, wait.start_ns));
}

constexpr unsigned polls_per_check = 32;  // of the clock and the abort word

// Lane verb: waits until arrived() is true. When the time is up, the record names the peer and everybody leaves. A lane
// that has not run for long looks once more first: what has arrived counts.
template <class Predicate>
UCCLEP_FN bool wait_peer(const Op& op, Phase phase, uint32_t peer, Predicate&& arrived) {
  Wait wait{};
  for (unsigned polls = 0; !arrived(); ++polls) {
    if (polls > polls_when_late) {
      report_timeout(op, phase, peer, wait);
      return false;
    }
    if (polls == 0) wait = begin_wait(op.group.timeout_ns, op.group.abort_word);
    pause();
    if (polls % polls_per_check != polls_per_check - 1) continue;
    if (aborted(wait)) return false;
    if (timed_out(wait)) polls = polls_when_late;
  }
  return true;
}

// Warp verb: the same with a predicate that all lanes evaluate together and whose answer is the same for all. begin():
// the wait, which begins now; late(wait): all lanes, when the time is up.
template <class Begin, class Predicate, class Late>
UCCLEP_FN bool wait_warp(Begin&& begin, Predicate&& arrived, Late&& late) {
  Wait wait{};
  for (unsigned polls = 0; !arrived(); ++polls) {
    if (polls > polls_when_late) {
      late(wait);
      return false;
    }
    if (polls == 0) wait = begin();
    pause();
    if (polls % polls_per_check != polls_per_check - 1) continue;
    // Lane 0 decides for all: clocks differ from lane to lane.
    uint32_t verdict = 0;
    if (lane_id() == 0) verdict = aborted(wait) ? 1 : timed_out(wait) ? 2 : 0;
    verdict = broadcast(verdict, 0);
    if (verdict == 1) return false;
    if (verdict == 2) polls = polls_when_late;
  }
  return true;
}

// Warp verb: waits for a peer. The predicate may say another one, too.
template <class Predicate>
UCCLEP_FN bool wait_peer_warp(const Op& op, Phase phase, const uint32_t& peer, Predicate&& arrived) {
  return wait_warp([&] { return begin_wait(op.group.timeout_ns, op.group.abort_word); }, arrived,
                   [&](const Wait& wait) {
                     if (lane_id() == 0) report_timeout(op, phase, peer, wait);
                   });
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

// Verb of one thread. entries: of the operation's kind; number: number_of.
UCCLEP_COLD_FN void note_mark(TraceEntry* entries, uint64_t number, Mark mark) {
  TraceEntry& entry = entries[number % trace_depth];
  if (mark == Mark::begin) store_relaxed<Scope::system>(&entry.seq, number);
  store_relaxed<Scope::system>(&entry.ns[static_cast<uint32_t>(mark)], clock_ns());
}

// Verb of one thread of a block.
UCCLEP_FN void mark(const Op& op, Mark what) {
  TraceEntry* const entries = op.group.trace;
  if (entries != nullptr) note_mark(entries + static_cast<uint32_t>(op.kind) * trace_depth, number_of(op), what);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
