// SPDX-License-Identifier: Apache-2.0
// How a user's kernel waits for a peer. Most of what it waits for is there when it looks: one look stands where it
// waits, and all that follows when a word is late is one function for the whole kernel. A kernel that has each wait
// where it stands is several times as large as what an SM keeps of it, and fetches the rest again in each round.
//
// | who releases                  | who acquires                  | what is ordered                          |
// |-------------------------------|-------------------------------|------------------------------------------|
// | publish of an epoch (system)  | await_word: load_acquire      | what was written before the epoch        |
// | store_packet                  | await_packet: one access      | the packet's value alone                 |
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Whose wait it is, in few words.
struct LateOf {
  const ucclEpDeviceGroup* group;
  uint64_t seq;
  Kind kind;
  Operation name;
  Phase phase;
  uint32_t peer;

  static UCCLEP_FN LateOf of(const Op& op, Phase phase, uint32_t peer) {
    return {&op.group, op.seq, op.kind, op.name, phase, peer};
  }
  UCCLEP_FN Op op() const { return {*group, kind, name, seq, 0}; }
};

UCCLEP_COLD_FN bool await_late_word(LateOf late, const char* word) {
  return wait_word(late.op(), late.phase, late.peer, word);
}
// The packet with the operation's number, or with another: it did not come.
UCCLEP_COLD_FN Packet await_late_packet(LateOf late, const Packet* packet) {
  uint64_t value = 0;
  const bool came = SentBy(late.op(), late.peer).wait(late.phase, packet, value);
  return {value, came ? late.seq : late.seq - 1};
}

// Lane verbs. False: it did not come.
UCCLEP_FN bool await_word(const Op& op, Phase phase, uint32_t peer, const char* word) {
  if (load_acquire<Scope::system>(reinterpret_cast<const uint64_t*>(word)) == op.seq) return true;
  return await_late_word(LateOf::of(op, phase, peer), word);
}
UCCLEP_FN bool await_packet(const Op& op, Phase phase, uint32_t source, const Packet* packet, uint64_t& value) {
  Packet seen = load_packet(packet);
  if (seen.epoch != op.seq || op.masked()) {
    seen = await_late_packet(LateOf::of(op, phase, source), packet);
  }
  value = seen.value;
  return seen.epoch == op.seq;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
