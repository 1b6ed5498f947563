// SPDX-License-Identifier: Apache-2.0
// What a kernel asks of the masks of its group (layout/masks.hpp, protocol P12, P13), and how it notes a lost peer.
#pragma once
#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/simt/simt.hpp"

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
  return is_masked(reload(group).masks, rank);
}

// The same in kernels of groups that may have masks. Those of other groups ask nothing.
template <class Wire>
UCCLEP_FN bool is_masked(const ucclEpDeviceGroup& group, uint32_t rank) {
  if constexpr (Wire::masks) return is_masked(group, rank);
  return false;
}

// Has operation `seq` no rows of the rank, and no header.
UCCLEP_FN bool is_absent(GroupMasks* masks, Kind kind, uint64_t seq, uint32_t rank) {
  return masks != nullptr && load_relaxed<Scope::gpu>(&masks->of(rank).last[static_cast<uint32_t>(kind)]) < seq;
}
UCCLEP_FN bool is_absent(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq, uint32_t rank) {
  return is_absent(reload(group).masks, kind, seq, rank);
}

// Are its rows of the dispatch zero rows, which the repair has written.
UCCLEP_FN bool is_blank(const ucclEpDeviceGroup& group, uint64_t seq, uint32_t rank) {
  GroupMasks* const masks = reload(group).masks;
  return masks != nullptr && load_relaxed<Scope::gpu>(&masks->of(rank).blank) == seq;
}

// Everybody leaves, unless the communicator has been aborted: then they do already.
UCCLEP_FN void leave_all(GroupMasks* masks) {
  uint32_t expected = 0;
  compare_exchange<Scope::system>(&masks->leave, expected, leave_now);
}

UCCLEP_FN bool is_lost(GroupMasks* masks, uint32_t rank) {
  return load_relaxed<Scope::system>(&masks->of(rank).lost) != 0;
}

// Lane verb: the rank is lost, as the caller has put on record; the next repair masks it.
UCCLEP_FN void lose(GroupMasks* masks, uint32_t rank) {
  store_relaxed<Scope::system>(&masks->of(rank).lost, lost_bit | static_cast<uint32_t>(Phase::none));
  store_relaxed<Scope::system>(&masks->announced[rank], uint32_t{1});
  fence_acq_rel<Scope::system>();  // who leaves sees why
  leave_all(masks);
}

UCCLEP_HD constexpr uint32_t kind_of(Operation operation) {
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

// Is the launch that begins to run the operation: a second one only if the repair has asked for it.
UCCLEP_FN bool begins(const ucclEpDeviceGroup& group, Kind kind, uint64_t seq) {
  const auto k = static_cast<uint32_t>(kind);
  const bool asked = load_relaxed<Scope::gpu>(&group.masks->again[k]) == seq;
  if (group.again != 0 || asked) return group.again != 0 && asked;  // if not again: the second run was given up, too
  if (block_id() == 0 && thread_id() == 0) store_relaxed<Scope::gpu>(&group.masks->begun[k], seq);
  return true;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
