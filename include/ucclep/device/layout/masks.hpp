// SPDX-License-Identifier: Apache-2.0
// Masks (protocol P12, P13), of groups with enable_mask. Every operation is three launches: the operation, its mend
// (mend.hpp), and the operation again, which returns at once unless the mend has asked for it. So what blocks of one
// launch know of the masks does not change while it runs, and they decide alike without a word between them: a wait
// that misses its deadline only notes the peer as lost, and all leave; the mend masks it. Dispatch and combine of HT
// have one launch more, their first half (halves.hpp), which waits for no peer's rows; what may run again is the
// second.
#pragma once
#include "ucclep/device/layout/network_view.hpp"

namespace ucclep {

constexpr uint64_t all_operations = ~uint64_t{0};

struct RankMask {
  uint64_t last[num_kinds];  // the last operation with rows of this rank; all_operations: it is active
  uint64_t blank;            // the dispatch in which its rows are zero rows: not all of them came
  uint32_t lost;             // not 0: a wait for it has missed its deadline, in this Phase; or the host has said so, of
                             // one that may live and of one that has gone: Phase::none
  uint32_t unused;
};
constexpr uint32_t lost_bit = 0x80000000u, gone_bit = 0x40000000u;
constexpr Phase phase_lost_in(uint32_t lost) {
  return static_cast<Phase>(lost & ~(lost_bit | gone_bit));
}
constexpr uint32_t leave_now = 2;  // somebody is lost: all leave, and the operation is mended

// Of one group, in device memory.
struct GroupMasks {
  uint32_t leave;              // the group's abort word: 1 as ever, leave_now
  uint32_t masked;             // 1: the abort word is one of these. Behind others there is 0
  uint32_t never;              // 0: for a wait that ends for no peer's sake
  uint32_t evicted_claim;      // of the record below
  uint64_t begun[num_kinds];   // the last operation that has begun
  uint64_t again[num_kinds];   // the operation that is to run again
  uint64_t missed[num_kinds];  // the last operation of which a wait for what a peer sends has missed its deadline
  uint64_t counted;            // the dispatch that the caller's counters have
  RecordSlot* evicted;         // host memory: a peer has masked this rank
  uint32_t* told;              // [R], host memory: 1 for a rank that is masked, or that the next mend masks

  UCCLEP_HD RankMask* ranks() { return reinterpret_cast<RankMask*>(this + 1); }
  UCCLEP_HD RankMask& of(uint32_t rank) { return ranks()[rank]; }
  static UCCLEP_HD constexpr uint64_t bytes(uint32_t ranks) { return sizeof(GroupMasks) + sizeof(RankMask) * ranks; }
};

// Gets the words of a masked group: MaskUpdate, MaskQuery and MaskClear.
struct MaskArgs {
  ucclEpDeviceGroup group;
  int* out;                                  // MaskQuery
  uint64_t next[num_kinds];                  // MaskClear
  uint64_t active[ceil_div(max_ranks, 64)];  // a bit for each rank
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

// Has the group masks, in kernels whose Wire knows of them.
template <class Wire>
UCCLEP_FN bool has_masks(const ucclEpDeviceGroup& group) {
  return Wire::masks && group.masks != nullptr;
}

// Is the rank masked: nothing is sent to it, and combine adds nothing of it.
UCCLEP_FN bool is_masked(GroupMasks* masks, uint32_t rank) {
  return masks != nullptr && load_relaxed<Scope::gpu>(&masks->of(rank).last[0]) != all_operations;
}
UCCLEP_FN bool is_masked(const ucclEpDeviceGroup& group, uint32_t rank) {
  return is_masked(read_again(group).masks, rank);
}

// The same in kernels of groups that may have masks. Those of other groups ask nothing.
template <class Wire>
UCCLEP_FN bool is_masked(const ucclEpDeviceGroup& group, uint32_t rank) {
  if constexpr (Wire::masks) return is_masked(group, rank);
  return false;
}

// Has operation `seq` no rows of the rank, and no header.
UCCLEP_FN bool is_absent(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq, uint32_t rank) {
  GroupMasks* const masks = read_again(group).masks;
  return masks != nullptr && load_relaxed<Scope::gpu>(&masks->of(rank).last[static_cast<uint32_t>(kind)]) < seq;
}

// Are its rows of the dispatch zero rows, which the mend has written.
UCCLEP_FN bool is_blank(const ucclEpDeviceGroup& group, uint64_t seq, uint32_t rank) {
  GroupMasks* const masks = read_again(group).masks;
  return masks != nullptr && load_relaxed<Scope::gpu>(&masks->of(rank).blank) == seq;
}

// In the rank's window: not 0 once the peer has masked it.
UCCLEP_FN uint64_t* evicted_by(const ucclEpDeviceGroup& group, uint32_t rank, uint32_t peer) {
  return reinterpret_cast<uint64_t*>(group.windows[rank] + group.layout.evicted_word(peer));
}

// Where a peer says here that it has masked this rank. networked: some ranks may be reached by it only; kernels of
// other groups do not contain it.
template <bool networked = true>
UCCLEP_FN const uint64_t* word_of_eviction(const ucclEpDeviceGroup& group, uint32_t peer) {
  if constexpr (networked) {
    if (group.windows[peer] == nullptr) return group.network->arrivals.evicted + peer;
  }
  return evicted_by(group, static_cast<uint32_t>(group.rank), peer);
}
// Lane verb: has it.
template <bool networked = true>
UCCLEP_FN bool is_evicted_by(const ucclEpDeviceGroup& group, uint32_t peer) {
  return load_relaxed<Scope::system>(word_of_eviction<networked>(group, peer)) != 0;
}

// Lane verb: tells the rank that this one masks it, before this one writes over what the other may yet read. One that
// has died, or has no connection, reads nothing.
template <bool networked = true>
UCCLEP_FN void evict(const ucclEpDeviceGroup& group, uint32_t rank) {
  if constexpr (networked) {
    if (group.windows[rank] == nullptr) {
      const bool gone = (load_relaxed<Scope::system>(&group.masks->of(rank).lost) & gone_bit) != 0;
      return network::part_from(group.network, rank, gone ? 0 : group.timeout_ns, &group.masks->leave);
    }
  }
  store_relaxed<Scope::system>(evicted_by(group, rank, static_cast<uint32_t>(group.rank)), uint64_t{1});
  fence_acq_rel<Scope::system>();
}

// Everybody leaves, unless the communicator has been aborted: then they do already.
UCCLEP_FN void leave_all(GroupMasks* masks) {
  uint32_t expected = 0;
  compare_exchange<Scope::system>(&masks->leave, expected, leave_now);
}

// Verb of a scope's members: has an active peer masked this rank. Then everybody leaves, and the mend says so.
template <bool networked = true, class Coop = block>
UCCLEP_FN bool was_evicted(const ucclEpDeviceGroup& group) {
  for (uint32_t p = Coop::rank(); p < group.shape.ranks; p += Coop::size()) {
    if (!is_evicted_by<networked>(group, p) || is_masked(group, p)) continue;
    leave_all(group.masks);
    return true;
  }
  return false;
}

UCCLEP_FN bool is_lost(GroupMasks* masks, uint32_t rank) {
  return load_relaxed<Scope::system>(&masks->of(rank).lost) != 0;
}

// Lane verb: the rank is lost, as the caller has put on record; the next mend masks it.
UCCLEP_FN void lose(GroupMasks* masks, uint32_t rank) {
  store_relaxed<Scope::system>(&masks->of(rank).lost, lost_bit | static_cast<uint32_t>(Phase::none));
  store_relaxed<Scope::system>(&masks->told[rank], uint32_t{1});
  fence_acq_rel<Scope::system>();  // who leaves sees why
  leave_all(masks);
}

constexpr uint32_t kind_of(Operation operation) {
  return static_cast<uint32_t>(operation) - 1;
}
static_assert(kind_of(Operation::dispatch) == static_cast<uint32_t>(Kind::dispatch) &&
              kind_of(Operation::combine) == static_cast<uint32_t>(Kind::combine));

// Lane verb: a wait for the rank has ended in vain. False: in a second run, or a group without masks.
UCCLEP_FN bool note_lost(uint32_t* abort_word, Operation operation, uint64_t seq, uint32_t rank, uint32_t phase) {
  if (load_relaxed<Scope::gpu>(abort_word + 1) == 0) return false;
  auto* masks = reinterpret_cast<GroupMasks*>(abort_word);
  if (load_relaxed<Scope::gpu>(&masks->again[kind_of(operation)]) == seq) return false;
  if (!is_lost(masks, rank)) store_relaxed<Scope::system>(&masks->of(rank).lost, lost_bit | phase);
  // A wait for room to command puts comes before rows leave: what others send may have waited as long.
  if (static_cast<Phase>(phase) != Phase::ring) store_relaxed<Scope::gpu>(&masks->missed[kind_of(operation)], seq);
  leave_all(masks);
  return true;
}

// Verb of a block's threads, in the place of the waits of slots_free: false: this rank is out, or all is. Those who are
// lost are not waited for, and nobody leaves for their sake: whoever does has sent all that others wait for.
template <bool networked>
UCCLEP_COLD_FN bool slots_free_of_living(const ucclEpDeviceGroup& group, Kind kind, uint64_t needed) {
  if (was_evicted<networked>(group)) return false;
  GroupMasks* const masks = group.masks;
  const Wait wait = begin_wait(group.timeout_ns, &masks->leave);
  for (uint32_t p = thread_id(); p < group.shape.ranks; p += block_size()) {
    const auto* word = reinterpret_cast<const uint64_t*>(group.mine + group.layout.consumed_word(group.shape, kind, p));
    while (load_acquire<Scope::system>(word) < needed && !is_lost(masks, p) && !is_masked(masks, p)) {
      if constexpr (networked) {
        if (group.windows[p] == nullptr) network::look(network::Source::of(group, kind, needed, p));
      }
      pause();
      if (load_relaxed<Scope::system>(&masks->leave) == 1) return false;
      if (timed_out(wait)) {
        store_relaxed<Scope::system>(&masks->of(p).lost, lost_bit | static_cast<uint32_t>(Phase::consumed));
      }
    }
    if (is_masked(masks, p) || load_acquire<Scope::system>(word) >= needed) continue;
    evict<networked>(group, p);  // it looks in the mend
  }
  return load_relaxed<Scope::system>(&masks->leave) != 1;
}

// Is the launch that begins to run the operation: a second one only if the mend has asked for it.
UCCLEP_FN bool begins(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq) {
  const auto k = static_cast<uint32_t>(kind);
  const bool asked = load_relaxed<Scope::gpu>(&group.masks->again[k]) == seq;
  if (group.again != 0 || asked) return group.again != 0 && asked;  // if not again: the second run was given up, too
  if (block_id() == 0 && thread_id() == 0) store_relaxed<Scope::gpu>(&group.masks->begun[k], seq);
  return true;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
