// SPDX-License-Identifier: Apache-2.0
// An operation of HT runs in rounds. A slot has room for the rows of so many tokens of every rank
// (GroupShape::ht_tokens); the routing may have more. Round r has the next so many tokens, on every rank, and lies in
// the slot of its own number (Op::in_round): a round is to slots and consumed words what an operation of one round is
// (P1). All ranks have the rounds that the largest T needs. With n slots a rank sends and receives in the order
//
//   S 0 .. S n-1, R 0, S n, R 1, S n+1, .. R last
//
// where S r waits for R r-n of all ranks, and R r for S r of all ranks. Each waits for what comes earlier in that order
// alone. So no number of rounds, and of slots from two on, is a deadlock; and no number of resident blocks, since what
// is waited for is taken by turns (protocol/turns.hpp), also R r where some S r+n waits for it.
//
// clang-format off
// | who releases                             | who acquires                     | what is ordered                     |
// |------------------------------------------|----------------------------------|-------------------------------------|
// | part_read: fetch_add_acq_rel (gpu) of    | the last one's                   | all reads of a round, and the       |
// |   the parts of a round                   |                                  |   publish of the one before, before |
// |                                          |                                  |   its number is published           |
// | publish_round: publish of consumed       | slot_free of peers, as in        | these before the next writes into   |
// |   (system), or `consumed` to the proxy   |   protocol/slots.hpp             |   the slot                          |
// | send_places: store_packet                | places_come: load_packet         | nothing but the packet              |
// clang-format on
#pragma once
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/protocol/turns.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Of the rows from one rank to another, those of a round.
struct PlaceRange {
  uint32_t begin, end;
};

// Tokens of a round: [begin, end) of this rank's.
struct TokenRange {
  WarpUniform begin, end;

  static UCCLEP_FN TokenRange of(const Op& op, uint32_t tokens) {
    const uint32_t of_round = op.group.shape.ht_tokens, begin = op.round * of_round;
    const uint32_t first = begin < tokens ? begin : tokens;
    return {first, tokens - first < of_round ? tokens : first + of_round};
  }
};

UCCLEP_FN uint32_t tokens_in_round(const Op& op, uint32_t tokens) {
  const TokenRange range = TokenRange::of(op, tokens);
  return range.end - range.begin;
}

// Lane verb: rows for a rank of earlier rounds.
UCCLEP_FN uint32_t sent_before(const Op& op, const HandleMemory& memory, uint32_t rank) {
  return op.round == 0 ? 0 : memory.sent_before(op.round)[rank];
}
// Lane verbs: the places that a round has among the rows to a rank, or behind the ranks to a node; and, after the
// dispatch, among those from a rank.
UCCLEP_FN PlaceRange sent_in_round(const Op& op, const HandleMemory& memory, uint32_t rank) {
  return {memory.sent_before(op.round)[rank], memory.sent_before(op.round + 1)[rank]};
}
UCCLEP_FN PlaceRange came_in_round(const Op& op, const HandleMemory& memory, uint32_t rank) {
  return {memory.come_before(op.round)[rank], memory.come_before(op.round + 1)[rank]};
}

// Warp verb, of a later round of a dispatch: to each rank which of its places come. Of the first READY has it.
// header_for(peer): where its header is put together.
template <class HeaderFor>
UCCLEP_FN void send_places(const Op& op, const HandleMemory& memory, HeaderFor&& header_for) {
  for (uint32_t i = lane_id(); i < op.ranks(); i += wave_size) {
    const uint32_t peer = op.rotated(i);
    const PlaceRange sent = sent_in_round(op, memory, peer);
    store_packet(header_for(peer) + HeaderLayout::round, sent.begin | uint64_t{sent.end} << 32, op.seq);
  }
  sync_warp();
}

// Warp verb, in a round of a dispatch: waits for that of all ranks. keeps: this warp keeps it for combine.
UCCLEP_FN bool places_come(const Op& op, const HandleMemory& memory, uint32_t rounds, bool keeps) {
  if (rounds == 1) return true;
  bool ok = true;
  for (uint32_t source = lane_id(); source < op.ranks() && ok; source += wave_size) {
    const Packet* const packet = header_packets(op, op.me(), source) + HeaderLayout::round;
    uint64_t value = 0;
    ok = wait_packet(op, Phase::header, source, packet, value);
    if (!ok) break;
    const uint32_t begin = static_cast<uint32_t>(value), end = static_cast<uint32_t>(value >> 32);
    ok = begin <= end && end - begin <= op.group.shape.ht_tokens && end <= memory.rows_from()[source];
    if (!ok) report_count(op, source, end, memory.rows_from()[source]);
    if (keeps && op.round + 1 < rounds) memory.come_before(op.round + 1)[source] = end;
  }
  return every_lane(ok);
}
// Lane verb, after it.
UCCLEP_FN PlaceRange places_in_round(const Op& op, const HandleMemory& memory, uint32_t rounds, uint32_t source) {
  if (rounds == 1) return {0, memory.rows_from()[source]};
  const uint64_t value = SentBy(op, source).value(header_packets(op, op.me(), source) + HeaderLayout::round);
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
}

// Lane verb: where a row of the round lies among those to its rank; and to its node.
UCCLEP_FN uint32_t place_in_round(const Op& op, const HandleMemory& memory, uint32_t rank, uint32_t place) {
  return place - sent_before(op, memory, rank);
}
UCCLEP_FN uint32_t node_place_in_round(const Op& op, const HandleMemory& memory, uint32_t node, uint32_t place) {
  return place - sent_before(op, memory, op.ranks() + node);
}

// What the waits of rounds need, in few words: they are calls, since few operations have several rounds.
struct RoundWait {
  const uint64_t* consumed;  // [ranks], by which rank
  GroupState* state;
  DeviceErrors* errors;
  uint32_t* abort_word;
  uint64_t timeout_ns, seq;
  uint32_t ranks, slots, slot;
  Kind kind;
  Operation name;

  static UCCLEP_FN RoundWait of(const Op& op) {
    const ucclEpDeviceGroup& group = reload(op.group);
    return {consumed_by(group, op.kind, 0),
            group.state,
            group.errors,
            group.abort_word,
            group.timeout_ns,
            op.seq,
            group.shape.ranks,
            group.shape.in_flight,
            op.slot,
            op.kind,
            op.name};
  }
};

// Warp verb, before it writes what belongs to a later round: all ranks have read what lay in its slot.
UCCLEP_COLD_FN bool wait_slot(RoundWait of) {
  bool ok = true;
  for (uint32_t p = lane_id(); p < of.ranks && ok; p += wave_size) {
    const Wait wait = begin_wait(of.timeout_ns, of.abort_word);
    ok = wait_until(wait, [&] { return load_acquire<Scope::system>(of.consumed + p) + of.slots >= of.seq; });
    if (ok || aborted(wait)) continue;
    report_timeout(of.errors, of.abort_word, {of.seq, wait.start_ns, of.state, of.slot, of.name, Phase::consumed, p});
  }
  ok = every_lane(ok);
  acquire_then_bulk();
  return ok;
}
UCCLEP_FN bool slot_free(const Op& op) {
  return wait_slot(RoundWait::of(op));
}

// Does some later round wait until this one is read.
UCCLEP_FN bool is_awaited(const Op& op, uint32_t rounds) {
  return op.round + op.group.shape.in_flight < rounds;
}

// Warp verb: publishes that this rank has read all up to a round. Lane 0 has acquired the reads of others, and every
// lane publishes to a peer.
UCCLEP_FN void publish_to_peers(const Op& op) {
  const ucclEpDeviceGroup& group = reload(op.group);
  sync_warp();
  publish_to_windows(group.windows, group.shape.ranks, group.layout.consumed_word(group.shape, op.kind, op.me()),
                     op.seq, {lane_id(), wave_size});
  sync_warp();
}

// How many parts an awaited round has: its tokens, so many shares, and from round `first` on so many more.
struct RoundParts {
  uint32_t tokens, shares, first, more;

  UCCLEP_FN uint32_t of(const Op& op) const {
    return tokens_in_round(op, tokens) + shares + (op.round >= first ? more : 0);
  }
};

// Warp verb: one part of an awaited round has been read. The warp that reads the last part publishes the round. This
// publish is itself a part of the next round. So rounds are published in order, and no warp waits for that. counts: of
// the handle.
template <class Wire>
UCCLEP_FN bool part_read(const Op& op, uint32_t* counts, uint32_t rounds, const RoundParts& parts) {
  for (WarpUniform r = op.round; r + op.group.shape.in_flight < rounds; r += 1) {
    const Op at = op.in_round(r);
    const uint32_t all = parts.of(at) + (r == 0 ? 0 : 1);
    sync_warp();
    uint32_t last = 0;
    if (lane_id() == 0 && fetch_add_acq_rel<Scope::gpu>(counts + r, 1u) + 1 == all) {
      store_relaxed<Scope::gpu>(counts + r, 0u);
      last = 1;
    }
    if (broadcast(last, 0) == 0) return true;
    if (!Wire::publish_round(at)) return false;
  }
  return true;
}

// Rounds that an operation has taken, and so numbers: where ranks differ, all end in the first one.
template <class Wire>
UCCLEP_FN uint32_t rounds_moved(const HandleMemory& memory, HeaderResult result) {
  return result == HeaderResult::good ? Wire::rounds(memory) : 1;
}

// Rounds of an operation, and those that a launch sends: a send phase those for which there are slots, a receive phase
// the others.
struct SentRounds {
  WarpUniform all, first, end;

  static UCCLEP_FN SentRounds of(const GroupShape& shape, uint32_t all, Phases phases) {
    const uint32_t slots = shape.in_flight, early = all < slots ? all : slots;
    return {all, phases == Phases::receive ? early : 0u, phases == Phases::send ? early : all};
  }
};

// What a warp takes by turns: shares of so many rounds, from `first` on. next: a word of the warp's shared memory,
// where it keeps the turn that it has taken and not used yet.
struct Shares {
  Turn what;
  uint32_t first, rounds;
  uint32_t* next;

  // Warp verbs.
  UCCLEP_FN void keep(uint32_t turn) const {
    if (lane_id() == 0) *next = turn;
  }
  UCCLEP_FN uint32_t kept() const { return turn_in(lane_id() == 0 ? *next : 0); }

  // Warp verb: body(block): the warp's shares of a round, each as if of that block. Each warp looks before a share
  // whether one will be left, so that where all blocks are resident it does not wait for that afterwards.
  template <class Body>
  UCCLEP_FN bool each(const Op& op, Body&& body) const {
    const WarpUniform begin = (op.round - first) * grid_size();
    const uint32_t seen = look_at_turns(op, what);
    for (WarpUniform turn = kept(); turn < begin + grid_size(); turn = kept()) {
      if (!body(turn - begin)) return false;
      keep(turn_in(seen) >= rounds * grid_size() ? no_turn : begin_turn(op, what));
    }
    return true;
  }
};

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
