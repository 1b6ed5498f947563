// SPDX-License-Identifier: Apache-2.0
// How a rank that masks a peer says so to it, and how a rank learns that it was masked (protocol P12); and the wait for
// free slots in a group with masks.
#pragma once
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/network/fifo.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

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

// Lane verb: notifies the rank that this one masks it, before this one writes over what the other may yet read. One
// that has died, or has no connection, reads nothing. The other may do the same: each looks at its own word afterwards,
// and one at least finds it.
template <bool networked = true>
UCCLEP_FN void evict(const ucclEpDeviceGroup& group, uint32_t rank) {
  if constexpr (networked) {
    if (group.windows[rank] == nullptr) {
      const bool gone = (load_relaxed<Scope::system>(&group.masks->of(rank).lost) & gone_bit) != 0;
      return network::detach_from(group.network, rank, gone ? 0 : group.timeout_ns, &group.masks->leave);
    }
  }
  store_relaxed<Scope::system>(evicted_by(group, rank, static_cast<uint32_t>(group.rank)), uint64_t{1});
  fence_seq_cst();
}

// Verb of a scope's members: has an active peer masked this rank. Then everybody leaves, and the repair says so.
template <bool networked = true, class Coop = block>
UCCLEP_FN bool was_evicted(const ucclEpDeviceGroup& group) {
  for (uint32_t p = Coop::rank(); p < group.shape.ranks; p += Coop::size()) {
    if (!is_evicted_by<networked>(group, p) || is_masked(group, p)) continue;
    leave_all(group.masks);
    return true;
  }
  return false;
}

// Verb of a block's threads, in the place of the waits of slots_free: false: this rank is out, or all is. Those who are
// lost are not waited for, and nobody leaves for their sake: whoever does has sent all that others wait for. A rank may
// be masked while it waits, and others then read, in its second run, what it sent before into this slot: so it looks
// for the word again before it stores.
template <bool networked>
UCCLEP_COLD_FN bool slots_free_masked(const ucclEpDeviceGroup& group, Kind kind, uint64_t needed) {
  if (was_evicted<networked>(group)) return false;
  GroupMasks* const masks = group.masks;
  const Wait wait = begin_wait(group.timeout_ns, &masks->leave);
  for (uint32_t p = thread_id(); p < group.shape.ranks; p += block_size()) {
    const auto* word = reinterpret_cast<const uint64_t*>(group.mine + group.layout.consumed_word(group.shape, kind, p));
    unsigned polls = 0;
    while (load_acquire<Scope::system>(word) < needed && !is_lost(masks, p) && !is_masked(masks, p)) {
      if constexpr (networked) {
        if (group.windows[p] == nullptr) network::look(network::Source::of(group, kind, needed, p));
      }
      pause();
      if (load_relaxed<Scope::system>(&masks->leave) == 1) return false;
      if (polls > polls_when_late)
        store_relaxed<Scope::system>(&masks->of(p).lost, lost_bit | static_cast<uint32_t>(Phase::consumed));
      if (timed_out(wait)) polls = polls_when_late;
      ++polls;
    }
    if (is_masked(masks, p) || load_acquire<Scope::system>(word) >= needed) continue;
    evict<networked>(group, p);  // it looks in the repair
  }
  return !was_evicted<networked>(group) && load_relaxed<Scope::system>(&masks->leave) != 1;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
