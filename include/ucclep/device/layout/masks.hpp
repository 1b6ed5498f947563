// SPDX-License-Identifier: Apache-2.0
// Masks (protocol P12, P13), of groups with enable_mask. Every operation is three launches: the operation, its repair
// (recovery/repair.hpp), and the operation again, which returns at once unless the repair has asked for it. So what
// blocks of one launch know of the masks does not change while it runs, and they decide alike without a word between
// them: a wait that misses its deadline only notes the peer as lost, and all leave; the repair masks it. Dispatch and
// combine of HT have one launch more, their send phase (protocol/phases.hpp), which waits for no peer's rows; what may
// run again is the receive phase.
#pragma once
#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"

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
UCCLEP_HD constexpr Phase phase_lost_in(uint32_t lost) {
  return static_cast<Phase>(lost & ~(lost_bit | gone_bit));
}
constexpr uint32_t leave_now = 2;  // somebody is lost: all leave, and the operation is repaired

// Of one group, in device memory.
struct GroupMasks {
  uint32_t leave;               // the group's abort word: 1 as ever, leave_now
  uint32_t masked;              // 1: the abort word is one of these. Behind others there is 0
  uint32_t never;               // 0: for a wait that ends for no peer's sake
  uint32_t evicted_claim;       // of the record below
  uint64_t begun[num_kinds];    // the last operation that has begun
  uint64_t again[num_kinds];    // the operation that is to run again
  uint64_t pending[num_kinds];  // an operation whose receive phase is to come
  uint64_t missed[num_kinds];   // the last operation of which a wait for what a peer sends has missed its deadline
  uint64_t counted;             // the dispatch that the caller's counters have
  RecordSlot* evicted;          // host memory: a peer has masked this rank
  uint32_t* announced;          // [R], host memory: 1 for a rank that is masked, or that the next repair masks

  UCCLEP_HD RankMask* ranks() { return reinterpret_cast<RankMask*>(this + 1); }
  UCCLEP_HD RankMask& of(uint32_t rank) { return ranks()[rank]; }
  static UCCLEP_HD constexpr uint64_t bytes(uint32_t ranks) { return sizeof(GroupMasks) + sizeof(RankMask) * ranks; }
};

}  // namespace ucclep
