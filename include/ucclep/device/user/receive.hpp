// SPDX-License-Identifier: Apache-2.0
// What receiving in a user's kernel has in common, in LL and in HT: instead of the receive phase that the library
// launches (user/operation.hpp), scopes of the grid ask for the rows that they go on with, wait for no others, and need
// no launch between sending, computing and sending back.
//
// Every row is asked for once. The call that receives the last of them ends the operation, and where there is none the
// first call does. So the next operation of the kind, in the same kernel or a later one, comes after all of these calls
// (in the same kernel: after a barrier of the grid). What a kernel did not ask for, ucclEpCompleteDispatch or
// ucclEpCompleteCombine receives, and all the rest once more.
//
// With masks (enable_mask) a call returns false, too, when a peer is lost meanwhile. The operation is pending then,
// nothing begins on the handle, and ucclEpCompleteDispatch or ucclEpCompleteCombine receives it all, without the rank
// that is lost; what the kernel has of that rank may count for nothing. Of HT, and where the host has completed no
// dispatch of the handle yet, ucclEpCompleteDispatch comes before ucclEpCompleteCombine in any case. All blocks come to
// a barrier between two operations, whatever their calls have returned, and wait there with
// begin_wait_for_blocks(group).
//
// | who releases                        | who acquires                         | what is ordered               |
// |-------------------------------------|--------------------------------------|-------------------------------|
// | the ticket of a call that is not    | the ticket of the last               | what all calls have read, and |
// |   the last (acq_rel, gpu)           |   (acq_rel, gpu)                     |   noted, before the end       |
// | leave_to_receive: store_release     | end_received: load_acquire (gpu)     | all that the rank's blocks    |
// |   (gpu), by the last block out      |   with masks all_sent, before waits  |   have sent before the end    |
// | HeadersRead::end: store_release     | by_now and await of other calls:     | the headers, and what the     |
// |   of the operation's number         |   load_acquire (gpu)                 |   first call has kept of them |
// | a peer that masks this rank: fence  | was_sound: fence (system), then the  | what was read before what the |
// |   (system) after the word           |   word                               |   peer writes there next      |
#pragma once
#include <type_traits>

#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/eviction.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/network.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"
#include "ucclep/device/user/waits.hpp"

namespace ucclep {

// Where rows of a dispatch go: row i of the output, counted over all its leading dimensions, at index i of each. NULL:
// not wanted.
struct DispatchRows {
  void* tokens = nullptr;         // [.][hidden], 16-byte aligned
  void* scales = nullptr;         // [.][scale_bytes]
  int32_t* topk_idx = nullptr;    // [.][K] as the handle's expert_ids says; -1: of another rank. Not in EXPERT_MAJOR
  float* topk_weights = nullptr;  // [.][K], in EXPERT_MAJOR [.]
  int64_t* src_info = nullptr;    // [.] the row's rank << 32 | its token there
};

// Where results of a combine go, and what is added to them: [T][hidden], 16-byte aligned. bias: NULL for none.
struct CombineRows {
  void* tokens = nullptr;
  const void *bias = nullptr, *bias2 = nullptr;
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

// Verb of a whole scope, with lanes<N> of all groups of the warp: has any member voted true? All get the same answer.
template <class Coop>
UCCLEP_FN bool any_together(bool vote) {
  if constexpr (whole_warps<Coop>) return Coop::any(vote);
  return std::is_same_v<Coop, thread> ? vote : ballot(vote) != 0;
}

// Lane verb: all blocks of this rank have sent what they had.
UCCLEP_FN bool all_sent(const DeviceOperation& open, const Op& op) {
  const uint64_t* const device_initiated = &open.memory().state()->device_initiated[static_cast<uint32_t>(op.kind)];
  const Wait wait = begin_wait_for_blocks(op, op.group.abort_word);
  if (wait_until(wait, [&] { return load_acquire<Scope::gpu>(device_initiated) == op.seq; })) return true;
  report_blocks(op, wait);
  return false;
}

// Verb of the scope: may it receive. With masks when all that this rank sends has left (P12): who waits for a peer may
// give up, and others wait for these rows. And nobody waits for the own rank, which cannot be lost.
template <class Coop>
UCCLEP_COLD_FN bool may_receive_masked(const DeviceOperation& open, const Op& op) {
  const bool sent = Coop::rank() != 0 || all_sent(open, op);
  Coop::sync();
  return !Coop::any(!sent);
}
template <class Coop>
UCCLEP_FN bool may_receive(const DeviceOperation& open, const Op& op) {
  return open.ok && (!op.masked() || may_receive_masked<Coop>(open, op));
}

// Verb of the scope, after all that it has read: nobody wrote over it meanwhile. A peer that has masked this rank says
// so first (P12), and may.
template <class Coop>
UCCLEP_COLD_FN bool was_sound_masked(const ucclEpDeviceGroup& group) {
  Coop::sync();
  fence_acq_rel<Scope::system>();
  return !Coop::any(was_evicted<true, Coop>(group));
}
template <class Coop>
UCCLEP_FN bool was_sound(const Op& op) {
  return !op.masked() || was_sound_masked<Coop>(op.group);
}

// Verb of the scope: all of everybody's settings are here, and are this rank's.
template <class Coop>
UCCLEP_FN HeaderResult compare_settings(const DeviceOperation& open, const Op& op) {
  bool lost = false, differs = false;
  for (uint32_t source = Coop::rank(); source < op.ranks() && !lost; source += Coop::size()) {
    if (op.masked() && is_absent(op.group.masks, op.kind, op.seq, source)) continue;
    const Packet* const header = network::header_from(op, source);
    uint64_t low = 0, high = 0;
    lost = !await_packet(op, Phase::header, source, header + HeaderLayout::settings_low, low) ||
           !await_packet(op, Phase::header, source, header + HeaderLayout::settings_high, high);
    if (lost || (low == open.settings.low() && high == open.settings.high())) continue;
    report_difference(op, source, open.settings, low, high);
    differs = true;
  }
  if (Coop::any(lost)) return HeaderResult::lost;
  return Coop::any(differs) ? HeaderResult::differs : HeaderResult::good;
}

// Verb of the scope: those of other domains are here, whole.
template <class Coop>
UCCLEP_FN bool headers_came(const Op& op) {
  bool lost = false;
  for (uint32_t source = Coop::rank(); source < op.ranks() && !lost; source += Coop::size()) {
    if (!op.masked() || !is_absent(op.group.masks, op.kind, op.seq, source)) lost = !network::header_came(op, source);
  }
  Coop::sync();  // one has seen that a header is whole, and all read it
  return !Coop::any(lost);
}

// Who of a rank reads the headers of an operation, and what came of it.
struct HeadersRead {
  const Op& op;
  uint64_t* const word;  // the last operation whose headers have been read; or the mark of one in which a scope reads
                         // them, or in which ranks differ

  UCCLEP_FN HeadersRead(const DeviceOperation& open, const Op& op)
      : op(op), word(&open.memory().state()->agreed[static_cast<uint32_t>(op.kind)]) {}

  // Verbs of the scope. Has a call done so before?
  template <class Coop>
  UCCLEP_FN bool by_now() const {
    const bool read = any_together<Coop>(Coop::rank() == 0 && load_acquire<Scope::gpu>(word) == op.seq);
    if (read) Coop::sync();  // what one has acquired, all have
    return read;
  }
  // Is it for this scope to do?
  template <class Coop>
  UCCLEP_FN bool is_mine() const {
    bool mine = false;
    if (Coop::rank() == 0) {
      uint64_t seen = load_relaxed<Scope::gpu>(word);
      mine = number_of(seen) != op.seq && compare_exchange<Scope::gpu>(word, seen, op.seq | under_way);
    }
    return Coop::any(mine);
  }
  // Otherwise: what has come of it.
  template <class Coop>
  UCCLEP_FN HeaderResult await() const {
    bool lost = false, differs = false;
    if (Coop::rank() == 0) {
      const Wait wait = begin_wait_for_blocks(op, op.group.abort_word);
      uint64_t seen = 0;
      lost = !wait_until(wait, [&] { return ((seen = load_acquire<Scope::gpu>(word)) & under_way) == 0; });
      if (lost) report_blocks(op, wait);
      differs = (seen & difference) != 0;
    }
    Coop::sync();  // what one has acquired, all have
    if (Coop::any(lost)) return HeaderResult::lost;
    return Coop::any(differs) ? HeaderResult::differs : HeaderResult::good;
  }
  // Later calls go by that. Where a peer was lost those that wait leave as this one does.
  template <class Coop>
  UCCLEP_FN void end(HeaderResult result) const {
    Coop::sync();
    if (Coop::rank() != 0 || result == HeaderResult::lost) return;
    store_release<Scope::gpu>(word, op.seq | (result == HeaderResult::differs ? difference : 0));
  }

 private:
  static constexpr uint64_t under_way = uint64_t{1} << 63, difference = uint64_t{1} << 62;
  static UCCLEP_FN uint64_t number_of(uint64_t seen) { return seen & ~(under_way | difference); }
};

// Verb of the scope: everybody's header is here, and says the same. Those from other domains are here whole then. The
// first call reads them, and note(), a verb of the scope, keeps what later calls want to know of them; false: it could
// not. Calls that come together all do so, and keep the same, so that none waits for another.
template <class Coop, class Note>
UCCLEP_FN HeaderResult agree(const DeviceOperation& open, const Op& op, const Note& note) {
  const HeadersRead read(open, op);
  if (read.template by_now<Coop>()) return HeaderResult::good;
  if (op.networked() && !headers_came<Coop>(op)) return HeaderResult::lost;
  const HeaderResult result = compare_settings<Coop>(open, op);
  if (result != HeaderResult::good) return result;
  if (any_together<Coop>(!note())) return HeaderResult::lost;
  read.template end<Coop>(HeaderResult::good);
  return HeaderResult::good;
}

// Lane verb: `rows` more of an operation are there, of `all`. True: they were the last, and the caller ends the
// operation; where there is none, the first call does. HandleState::received: the low half of the operation's number,
// and below it the rows so far, so that a word needs no beginning. (Only the first calls exchange it: when many do, one
// succeeds at a time.)
UCCLEP_FN bool count_received(const DeviceOperation& open, Kind kind, uint32_t rows, uint32_t all) {
  if (rows == 0 && all != 0) return false;
  uint64_t* const word = &open.memory().state()->received[static_cast<uint32_t>(kind)];
  const uint64_t number = open.seq << 32;
  uint64_t seen = load_relaxed<Scope::gpu>(word);
  while (seen >> 32 != number >> 32) {
    if (compare_exchange<Scope::gpu>(word, seen, number | rows)) return rows == all;
  }
  if (rows == 0) return false;
  return static_cast<uint32_t>(fetch_add_acq_rel<Scope::gpu>(word, uint64_t{rows})) + rows == all;
}

// Lane verb of the last: the operation has ended here. Peers hear of it when the next one begins, those of other
// domains now. All blocks of this rank have begun it then: one that has not would begin the next one instead.
UCCLEP_FN bool end_received(const DeviceOperation& open, const Op& op) {
  const bool networked = op.networked();
  if (!all_sent(open, op) || (networked && !network::all_in_alone(op))) return false;
  mark(op, Mark::end);
  end_at<true>(op.group, op.kind, op.seq);
  return !networked || network::send_consumed_alone(op);
}

// Lane verb: of a received row selection k, if it is an expert of this rank.
UCCLEP_FN void store_topk(const DeviceOperation& open, const DispatchRows& out, uint32_t row, uint32_t k,
                          const ReceivedSelection& s) {
  uint32_t expert = 0;
  const Op op = open.of(Kind::dispatch, Operation::dispatch);
  const bool mine = is_mine(op, s, expert), global = open.handle.view.expert_ids == UCCLEP_EXPERT_IDS_GLOBAL;
  const uint64_t at = uint64_t{row} * open.shape.top_k + k;
  if (out.topk_idx) out.topk_idx[at] = !mine ? -1 : global ? s.expert : static_cast<int32_t>(expert);
  if (out.topk_weights) out.topk_weights[at] = mine ? s.weight : 0.0f;
}

// Verb of some members of a scope: rows [begin, end), which hold nothing, say so.
template <class Coop>
UCCLEP_FN void mark_unused(const DeviceOperation& open, const DispatchRows& out, uint32_t begin, uint32_t end) {
  for (uint32_t row = begin + Coop::rank(); row < end; row += Coop::size()) {
    for (uint32_t k = 0; k < open.shape.top_k; ++k) store_topk(open, out, row, k, ReceivedSelection{});
    if (out.src_info && open.handle.view.mode == UCCLEP_MODE_LL) out.src_info[row] = -1;
  }
}

// Of a selection whose expert is another rank's, instead of a local expert.
constexpr uint32_t not_here = 0xffffffffu;

// The copies of a row for local experts: how many there are, and how many are for lower experts than one of them.
struct CopyOrder {
  uint32_t copies = 0, below = 0;

  UCCLEP_FN void count(uint32_t other, uint32_t mine) {
    copies += 1;
    if (other < mine) below += 1;
  }
  // Lane verb: looks at all selections of the row.
  template <class Row>
  static UCCLEP_FN CopyOrder among(const Row& row, uint32_t top_k, uint32_t mine) {
    CopyOrder order;
    for (uint32_t k = 0; k < top_k; ++k) {
      const uint32_t other = row.local_expert(k);
      if (other != not_here) order.count(other, mine);
    }
    return order;
  }
  // Warp verb: each lane has looked at one.
  static UCCLEP_FN CopyOrder among_lanes(uint32_t mine) {
    CopyOrder order;
    UCCLEP_KEEP_LOOP
    for (uint64_t left = ballot(mine != not_here); left != 0; left &= left - 1) {
      order.count(broadcast(mine, first_lane(left)), mine);
    }
    return order;
  }
};

// Lane verb: what combine needs to know of selection k of a row of EXPERT_MAJOR, by the order of experts. All who
// receive a copy of the row keep the same.
UCCLEP_FN void keep_copy(const DeviceOperation& open, uint32_t source, uint32_t place, uint32_t k,
                         const CopyOrder& order, const RecvEntry& entry) {
  const HandleMemory memory = open.memory();
  if (k == 0) store_relaxed<Scope::gpu>(memory.recv_count(source) + place, order.copies);
  if (entry.expert == not_here) return;
  auto* const to = reinterpret_cast<uint64_t*>(memory.recv_entries(source, place) + order.below);
  store_relaxed<Scope::gpu>(to, entry.row | uint64_t{entry.expert} << 32);
  store_relaxed<Scope::gpu>(to + 1, float_bits(entry.weight) | uint64_t{entry.k} << 32);
}

// Verb of members that are near: the same of all selections. row: its source, and local_expert(k), position(k) and
// weight(k) of its selections. base(expert): the first row of the source in the zone or slab of that expert.
template <class Coop, class Row, class Base>
UCCLEP_FN void note_copies(const DeviceOperation& open, const Row& row, uint32_t place, Base&& base) {
  const uint32_t top_k = open.shape.top_k;
  const auto note = [&](uint32_t k, uint32_t mine, const CopyOrder& order) {
    RecvEntry entry{0, mine, 0.0f, k};
    if (mine != not_here) {
      entry.row = row_number(uint64_t{base(mine)} + row.position(k));
      entry.weight = row.weight(k);
    }
    keep_copy(open, row.source, place, k, order, entry);
  };
  if constexpr (whole_warps<Coop>) {
    const uint32_t mine = lane_id() < top_k ? row.local_expert(lane_id()) : not_here;
    note(lane_id(), mine, CopyOrder::among_lanes(mine));
  } else {
    for (uint32_t k = Coop::rank(); k < top_k; k += Coop::size()) {
      const uint32_t mine = row.local_expert(k);
      note(k, mine, CopyOrder::among(row, top_k, mine));
    }
  }
}

// The ranks that return a partial row of a token, ascending, and its places there: as each member of a scope knows
// them. Masked ones return none.
struct Returns {
  uint32_t ranks[max_top_k], places[max_top_k], count = 0;

  UCCLEP_FN Returns(const DeviceOperation& open, uint32_t token) {
    const HandleMemory memory = open.memory();
    const uint32_t top_k = memory.shape.top_k;
    const auto* const experts = memory.at<int32_t>(memory.handle.offsets.topk) + uint64_t{token} * top_k;
    const auto* const place_of = memory.at<uint32_t>(memory.handle.offsets.places) + uint64_t{token} * top_k;
    for (uint32_t k = 0; k < top_k; ++k) {
      if (place_of[k] == no_place) continue;
      const uint32_t rank = memory.shape.rank_of(static_cast<uint32_t>(experts[k]));
      if (is_masked(open.handle.group, rank)) continue;
      uint32_t at = count++;
      for (; at > 0 && ranks[at - 1] > rank; --at) {
        ranks[at] = ranks[at - 1];
        places[at] = places[at - 1];
      }
      ranks[at] = rank;
      places[at] = place_of[k];
    }
  }
};

// A row's place in the output, of `bytes` each.
UCCLEP_FN char* row_at(void* rows, uint32_t row, uint32_t bytes) {
  return static_cast<char*>(rows) + uint64_t{row} * bytes;
}

// Verb of the scope: a combine_recv, whose results of tokens [first, last) sum(first, last) makes, a verb of the
// members that says whether all terms came. routed: there are any.
template <class Coop, class Open, class Sum>
UCCLEP_FN bool receive_tokens(const Open& open, const Op& op, uint32_t first, uint32_t last, bool routed, Sum&& sum) {
  if (!may_receive<Coop>(open, op)) return false;
  const HeaderResult result = agree<Coop>(open, op, [] { return true; });
  if (result == HeaderResult::lost) return false;
  const bool good = routed && result == HeaderResult::good;
  const uint32_t all = open.memory().state()->tokens, end = last < all ? last : all;
  const uint32_t tokens = first < end ? end - first : 0;
  const bool ok = !good || sum(end - tokens, end);
  if (Coop::any(!ok) || !was_sound<Coop>(op)) return false;
  Coop::sync();
  const bool ended = Coop::rank() != 0 || !count_received(open, Kind::combine, tokens, all) || end_received(open, op);
  return good && !Coop::any(!ended);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
