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
// | share_read: fetch_add_acq_rel (gpu) of   | the last one's                   | all reads of a round before its     |
// |   the shares of a round                  |                                  |   number is published               |
// | the last one: publish of consumed        | slot_free of peers, as in        | these before the next writes into   |
// |   (system)                               |   protocol/slots.hpp             |   the slot                          |
// | the last one: store_release of `read`    | slot_read, share_read of a later | publishes of consumed words, one    |
// |   (gpu)                                  |   round: load_acquire            |   after the other                   |
// | send_places: store_packet                | places_come: load_packet         | nothing but the packet              |
// clang-format on
#pragma once
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
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

// Lane verb: the places of a round among the rows for a rank.
UCCLEP_FN uint32_t sent_before(const Op& op, const HandleMemory& memory, uint32_t rank) {
  return op.round == 0 ? 0 : memory.sent_before(op.round)[rank];
}
UCCLEP_FN PlaceRange sent_in_round(const Op& op, const HandleMemory& memory, uint32_t rank, uint32_t rounds) {
  const uint32_t next = op.round + 1;
  return {sent_before(op, memory, rank), next < rounds ? memory.sent_before(next)[rank] : memory.rows_to()[rank]};
}
// The same of rows from a rank, after the dispatch that brought them.
UCCLEP_FN PlaceRange came_in_round(const Op& op, const HandleMemory& memory, uint32_t rank, uint32_t rounds) {
  const uint32_t next = op.round + 1;
  return {op.round == 0 ? 0 : memory.come_before(op.round)[rank],
          next < rounds ? memory.come_before(next)[rank] : memory.rows_from()[rank]};
}

// Warp verb, of a later round of a dispatch: to each rank which of its places come. Of the first READY has it.
UCCLEP_FN void send_places(const Op& op, const HandleMemory& memory, uint32_t rounds) {
  for (uint32_t i = lane_id(); i < op.ranks(); i += wave_size) {
    const uint32_t peer = op.rotated(i);
    const PlaceRange sent = sent_in_round(op, memory, peer, rounds);
    store_packet(header_packets(op, peer, op.me()) + HeaderLayout::round, sent.begin | uint64_t{sent.end} << 32,
                 op.seq);
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

// Warp verb, before it writes what belongs to a later round: all ranks have read what lay in its slot.
UCCLEP_FN bool slot_free(const Op& op) {
  const bool free = slots_free_of_warp(op, OpState{});
  acquire_then_bulk();
  return free;
}

// Does some later round wait until this one is read.
UCCLEP_FN bool is_awaited(const Op& op, uint32_t rounds) {
  return op.round + op.group.shape.in_flight < rounds;
}

// Verb of one thread, after the publish.
UCCLEP_FN void note_read(const Op& op, uint64_t seq) {
  store_release<Scope::gpu>(&op.group.state->read[static_cast<uint32_t>(op.kind)], seq);
}

// Lane verb: waits until this rank has read round `seq` of the running operation, and has published that.
UCCLEP_FN bool wait_read(const Op& op, uint64_t seq) {
  const Wait wait = begin_wait_for_blocks(op, op.group.abort_word);
  const uint64_t* const read = &op.group.state->read[static_cast<uint32_t>(op.kind)];
  const bool ok = wait_until(wait, [&] { return load_acquire<Scope::gpu>(read) >= seq; });
  if (!ok) report_blocks(op, wait);
  return ok;
}

// Warp verb, before a share of an awaited round is read: shares of the round before in its slot are all counted.
UCCLEP_FN bool slot_read(const Op& op) {
  const uint32_t slots = op.group.shape.in_flight;
  return every_lane(op.round < slots || lane_id() != 0 || wait_read(op, op.seq - slots));
}

// Warp verb: a share of an awaited round has been read, of so many. The last one publishes that, after those of all
// earlier rounds.
UCCLEP_FN bool share_read(const Op& op, uint32_t shares) {
  GroupState* const state = op.group.state;
  uint32_t* const count = &state->shares_read[op.slot];
  sync_warp();
  uint32_t last = 0;
  bool ok = true;
  if (lane_id() == 0) {
    last = fetch_add_acq_rel<Scope::gpu>(count, 1u) + 1 == shares ? 1 : 0;
    if (last != 0) {
      store_relaxed<Scope::gpu>(count, 0u);
      ok = wait_read(op, op.seq - 1);
    }
  }
  if (broadcast(last, 0) == 0) return true;
  if (!every_lane(ok)) return false;
  sync_warp();
  const ucclEpDeviceGroup& group = op.group;
  publish_to_windows(group.windows, group.shape.ranks, group.layout.consumed_word(group.shape, op.kind, op.me()),
                     op.seq, {lane_id(), wave_size});
  sync_warp();
  if (lane_id() == 0) note_read(op, op.seq);
  return true;
}

// Rounds of an operation, and those that a launch sends: a send phase those for which there are slots, a receive phase
// the others.
struct SentRounds {
  uint32_t all, first, end;

  static UCCLEP_FN SentRounds of(const Op& op, uint32_t all, Phases phases) {
    const uint32_t slots = op.group.shape.in_flight, early = all < slots ? all : slots;
    return {all, phases == Phases::receive ? early : 0, phases == Phases::send ? early : all};
  }
};

// Verb of a warp: rounds in the order above. send(op), receive(op): a round; receives: or else nothing is received.
template <class Send, class Receive>
UCCLEP_FN bool in_rounds(const Op& op, const SentRounds& sent, bool receives, Send&& send, Receive&& receive) {
  const WarpUniform slots = op.group.shape.in_flight, sends = sent.end, end = receives ? sent.all + slots : sent.end;
  for (WarpUniform r = sent.first; r < end; r += 1) {
    if (receives && r >= slots && !receive(op.in_round(r - slots))) return false;
    if (r < sends && !send(op.in_round(r))) return false;
  }
  return true;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
