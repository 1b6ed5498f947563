// SPDX-License-Identifier: Apache-2.0
// What follows each operation in a group with masks (layout/masks.hpp), by one block. After an operation in which
// nobody was lost it does nothing. After one that was given up it waits until everything of every other rank has come,
// which needs nothing more of this rank, or masks who does not deliver in time; and says that the operation is to run
// again, which then finds all that it asks for. What "everything" is, recovery/ll.hpp and recovery/ht.hpp say. And the
// three functions of masks, of one block as well.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/arrivals.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/network/fifo.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/eviction.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace recovery {

// Lane verb. last: the last operation of the kind with rows of the rank; of other kinds there is none. What it stores
// here from now on nobody reads.
UCCLEP_FN void mask_rank(const ucclEpDeviceGroup& group, uint32_t rank, Kind kind, uint64_t last) {
  RankMask& mask = group.masks->of(rank);
  for (uint32_t k = 0; k < num_kinds; ++k) {
    store_relaxed<Scope::gpu>(&mask.last[k], k == static_cast<uint32_t>(kind) ? last : 0);
  }
  evict(group, rank);
  store_relaxed<Scope::system>(&group.masks->announced[rank], uint32_t{1});
}

UCCLEP_FN uint32_t lost_in(const ucclEpDeviceGroup& group, uint32_t rank) {
  return load_relaxed<Scope::system>(&group.masks->of(rank).lost);
}

// Lane verb: the record of a peer that missed its deadline. Where the host has reported the peer, it has made the
// record.
UCCLEP_FN void report_lost(const Op& op, uint32_t rank, uint32_t lost) {
  const Phase phase = phase_lost_in(lost);
  if (phase == Phase::none) return;
  ErrorRecord record = record_of(op, ucclEpTimeout, phase, static_cast<int32_t>(rank));
  record.waited_ns = op.group.timeout_ns;
  report_data(op.group.errors, record);
}

// Lane verb.
UCCLEP_FN bool has_come(const Op& op, const Packet* packet) {
  return load_packet(packet).epoch == op.seq;
}

// Warp verb: are all of these packets there.
UCCLEP_FN bool have_come(const Op& op, const Packet* packets, uint32_t count) {
  bool all = true;
  for (uint32_t i = lane_id(); i < count; i += wave_size) all = all && has_come(op, packets + i);
  return every_lane(all);
}

// What has come of a rank.
enum class Received { nothing, header, all };

// Of one that only the network reaches. header: has been copied to where those of peers land.
struct FromNetwork {
  bool header = false;

  // Warp verb.
  UCCLEP_FN Received received(const Op& op, uint32_t rank) {
    uint64_t word = 0;
    if (lane_id() == 0) {
      const auto source = network::Source::of(op.group, op.kind, op.seq, rank);
      network::look(source);
      word = load_acquire<Scope::gpu>(source.seen().progress_of(op.kind, op.seq, rank));
    }
    const Progress progress = Progress::of_word(broadcast(word, 0));
    if (progress.seq != op.seq || !progress.announced) return Received::nothing;
    sync_warp();
    if (!header) network::copy_header(op, rank);
    header = true;
    return progress.complete ? Received::all : Received::header;
  }
};

// How long the repair waits, for all ranks from one moment on. Where a wait of this operation has missed its deadline
// all ranks have had the time limit already, since it began: one that has sent nothing is lost at once, one that has
// sent a header has half of the limit. So ranks that are lost together cost one time limit, and those that live do not
// drift apart by another, after which they would take each other for lost.
struct GraceTimer {
  Wait wait;
  bool deadline_missed;

  UCCLEP_FN bool ends(Received received) const {
    if (!deadline_missed) return timed_out(wait);
    return received == Received::nothing || clock_ns() - wait.start_ns >= wait.limit_ns / 2;
  }
};

// Waits of the repair for one rank: until all of it has come, or the rank is lost. Warp verb; look() is one, too.
template <class Look>
UCCLEP_FN Received wait_or_mask(const Op& op, uint32_t rank, const GraceTimer& timer, Look&& look) {
  Received before = Received::nothing;
  for (uint32_t verdict = 0;;) {
    const Received now = look();  // asked once more, after the verdict
    if (now == Received::all) return now;
    if (verdict != 0 && now == before) {
      if (verdict == 2 && lane_id() == 0) {
        store_relaxed<Scope::system>(&op.group.masks->of(rank).lost, lost_bit | static_cast<uint32_t>(Phase::rows));
      }
      return now;
    }
    before = now;
    pause();
    if (lane_id() == 0) {
      const bool over = lost_in(op.group, rank) != 0 || load_relaxed<Scope::system>(timer.wait.abort_word) == 1;
      verdict = over ? 1 : timer.ends(now) ? 2 : 0;
    }
    verdict = broadcast(verdict, 0);
  }
}

// Block verb, after the word to leave was taken back. The host may have reported a death since this block looked
// whether the rank is lost, and then nobody would leave for it: the next operation has to.
UCCLEP_FN void remind_of_deaths(const ucclEpDeviceGroup& group) {
  sync_block();
  fence_acq_rel<Scope::system>();  // the host first writes who has died, and then that all are to leave
  for (uint32_t p = thread_id(); p < group.shape.ranks; p += block_size()) {
    if (!is_masked(group, p) && is_lost(group.masks, p)) leave_all(group.masks);
  }
}

// Lane verb: a peer has masked this rank, whose group is refused from now on.
UCCLEP_FN void report_eviction(const Op& op, uint32_t peer) {
  keep_first(op.group.masks->evicted, record_of(op, ucclEpRemoteError, Phase::mask, static_cast<int32_t>(peer)));
}

// What an operation does that has not ended.
enum class Unfinished { runs_again, goes_on };

// Block verb of the only block: decide(rank, timer), a warp verb, for every active rank, if the operation is to run
// again; ranks that were lost are masked then, and by it.
template <class Decide>
UCCLEP_FN bool repair(const Op& op, const HandleMemory& memory, Decide&& decide,
                      Unfinished unfinished = Unfinished::runs_again) {
  const ucclEpDeviceGroup& group = op.group;
  GroupMasks& masks = *group.masks;
  const auto kind = static_cast<uint32_t>(op.kind);
  const bool evicted = !every_thread(!was_evicted(group));
  // op is the operation after the last that has ended. Is it pending, the receive phase of its handle repairs it.
  const bool of_others = load_relaxed<Scope::gpu>(&masks.pending[kind]) == op.seq &&
                         load_relaxed<Scope::gpu>(&memory.state()->device_initiated[kind]) != op.seq;
  bool again = !of_others && load_relaxed<Scope::gpu>(&masks.begun[kind]) == op.seq &&
               load_relaxed<Scope::system>(&masks.leave) != 1;
  again = every_thread(again);
  if (evicted) {
    for (uint32_t p = thread_id(); p < op.ranks(); p += block_size()) {
      if (!is_masked(group, p) && is_evicted_by(group, p)) report_eviction(op, p);
    }
    again = false;
  }
  if (again && load_relaxed<Scope::gpu>(&masks.again[kind]) == op.seq) {  // it was to run again, and was given up
    for (uint32_t p = thread_id(); p < op.ranks(); p += block_size()) {
      if (is_masked(group, p) || !is_lost(group.masks, p)) continue;
      report_fatal(group.errors, group.abort_word, record_of(op, ucclEpTimeout, Phase::rows, static_cast<int32_t>(p)));
    }
    return false;
  }
  const GraceTimer timer{begin_wait(group.timeout_ns, group.abort_word),
                         load_relaxed<Scope::gpu>(&masks.missed[kind]) == op.seq};
  bool both = false;
  for (uint32_t rank = warp_id(); rank < op.ranks() && !evicted; rank += block::warps()) {
    if (is_masked(group, rank)) continue;
    const uint64_t last = again ? decide(rank, timer) : 0;
    const uint32_t lost = broadcast(lane_id() == 0 ? lost_in(group, rank) : 0, 0);
    if (lost == 0) continue;
    sync_warp();
    if (lane_id() == 0) {
      report_lost(op, rank, lost);
      mask_rank(group, rank, op.kind, last);
      // The rank has masked this one meanwhile, and may write over what the second run would read.
      if (again && op.has_window(rank) && is_evicted_by(group, rank)) {
        report_eviction(op, rank);
        both = true;
      }
    }
  }
  again = every_thread(!both) && again;
  if (thread_id() == 0) {
    if (again && unfinished == Unfinished::runs_again) store_relaxed<Scope::gpu>(&masks.again[kind], op.seq);
    uint32_t expected = leave_now;
    compare_exchange<Scope::system>(&masks.leave, expected, uint32_t{0});
  }
  if (!evicted) remind_of_deaths(group);
  return again;
}

// MaskUpdate.
UCCLEP_FN void update_masks(const MaskArgs& args) {
  for (uint32_t p = thread_id(); p < args.group.shape.ranks; p += block_size()) {
    if (!args.active.has(p) && !is_masked(args.group, p)) mask_rank(args.group, p, Kind::dispatch, 0);
  }
}

// MaskQuery.
UCCLEP_FN void query_masks(const MaskArgs& args) {
  for (uint32_t p = thread_id(); p < args.group.shape.ranks; p += block_size()) {
    args.out[p] = is_masked(args.group, p) || lost_in(args.group, p) != 0 ? 0 : 1;
  }
}

// Block verb: counts and barriers of the channel, what peers have said of theirs here, and numbers of messages.
UCCLEP_FN void clear_channel(const ucclEpDeviceGroup& group) {
  const uint32_t words = static_cast<uint32_t>(ChannelState::bytes(group.shape) / sizeof(uint64_t));
  auto* const own = reinterpret_cast<uint64_t*>(group.channel);
  for (uint32_t i = thread_id(); i < words; i += block_size()) store_relaxed<Scope::gpu>(own + i, uint64_t{0});
  auto* const said = reinterpret_cast<uint64_t*>(group.mine + group.layout.signal_word(group.shape, 0, 0));
  for (uint32_t i = thread_id(); i < (group.shape.signals + num_teams) * group.shape.ranks; i += block_size()) {
    store_relaxed<Scope::system>(said + i, uint64_t{0});
  }
}

// MaskClear: all ranks that live begin anew, with numbers that no operation has had.
UCCLEP_FN void clear_masks(const MaskArgs& args) {
  clear_channel(args.group);
  const ucclEpDeviceGroup& group = args.group;
  GroupMasks& masks = *group.masks;
  for (uint32_t p = thread_id(); p < group.shape.ranks; p += block_size()) {
    const bool active = args.active.has(p);
    RankMask& mask = masks.of(p);
    for (uint32_t kind = 0; kind < num_kinds; ++kind) {
      store_relaxed<Scope::gpu>(&mask.last[kind], active ? all_operations : 0);
      char* const word = group.mine + group.layout.consumed_word(group.shape, static_cast<Kind>(kind), p);
      const uint64_t consumed = active ? args.next[kind] - 1 : all_operations;
      store_relaxed<Scope::system>(reinterpret_cast<uint64_t*>(word), consumed);
    }
    store_relaxed<Scope::system>(evicted_by(group, group.rank, p), uint64_t{0});
    if (active) store_relaxed<Scope::system>(&mask.lost, uint32_t{0});
    store_relaxed<Scope::system>(&masks.announced[p], active ? uint32_t{0} : uint32_t{1});
  }
  if (thread_id() != 0) return;
  for (uint32_t kind = 0; kind < num_kinds; ++kind) {
    set_ended(group, static_cast<Kind>(kind), args.next[kind] - 1);
    store_relaxed<Scope::gpu>(&masks.again[kind], uint64_t{0});
  }
  uint32_t expected = leave_now;
  compare_exchange<Scope::system>(&masks.leave, expected, uint32_t{0});
  forget(masks.evicted);
}

}  // namespace recovery
}  // namespace UCCLEP_SIMT_NAMESPACE
