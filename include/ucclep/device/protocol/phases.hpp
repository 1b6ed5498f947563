// SPDX-License-Identifier: Apache-2.0
// Operations in two phases (P2, P3): the first sends, and the SMs are free; the second receives. The first takes the
// sequence number and leaves it in the handle, so later operations of the kind, of other handles, may run between the
// two: whole ones, too, also in a graph that knew nothing of the phase when it was captured.
//
// clang-format off
// | who releases                       | who acquires                  | what is ordered                         |
// |------------------------------------|-------------------------------|-----------------------------------------|
// | send phase: the end of its launch  | receive phase, on a stream    | number and pending bit, what both keep  |
// |                                    |   that is ordered after it    |   in the handle                         |
// | ReceivePhase::end: publish of      | slots_free: load_acquire      | the last read of all slots up to that   |
// |   consumed (system), after the last|   (system)                    |   number before they are written again  |
// |   block's ticket (gpu,             |                               |                                         |
// |   fetch_add_acq_rel)               |                               |                                         |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/record.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Block verb, last thing of a send phase in a group with masks: the operation is pending, as a user's kernel leaves it,
// so that the receive phase can run again.
UCCLEP_FN void leave_pending(const Op& op, const HandleMemory& memory, bool ok) {
  ok = all_done(ok);
  if (thread_id() != 0 || !leave(op.group, op.kind, ok, true)) return;
  const auto kind = static_cast<uint32_t>(op.kind);
  memory.state()->device_initiated[kind] = op.seq;
  store_relaxed<Scope::gpu>(&op.group.masks->pending[kind], op.seq);
}

// Lane verb, in a group with masks: begins() of a launch that sends. Not where one of the kind is pending, which has
// the number: the host refuses that, but not of a graph that is replayed.
UCCLEP_FN bool begins_to_send(const Op& op) {
  const auto kind = static_cast<uint32_t>(op.kind);
  if (load_relaxed<Scope::gpu>(&op.group.masks->pending[kind]) != op.seq) return begins(op.group, op.kind, op.seq);
  if (op.group.again == 0 && block_id() == 0 && thread_id() == 0) {
    report_data(op.group.errors, record_of(op, ucclEpInvalidUsage, Phase::pending, -1));
  }
  return false;
}

// Lane verb: the slots of an operation, a bit for each. Of one in more rounds than there are slots: all.
UCCLEP_FN uint32_t slots_of(const Op& op, uint32_t rounds) {
  const uint32_t n = op.group.shape.in_flight, bits = (1u << (rounds < n ? rounds : n)) - 1;
  const uint32_t turned = bits << op.slot;
  return (turned | turned >> n) & ((1u << n) - 1);
}

// Block verb, last thing of any other. op: in its first round.
UCCLEP_FN void end_send_phase(const Op& op, const HandleMemory& memory, bool ok, uint32_t rounds) {
  if (!end_operation(op.in_round(rounds - 1), ok, true) || thread_id() != 0) return;
  const auto kind = static_cast<uint32_t>(op.kind);
  GroupState* const state = op.group.state;
  const uint32_t slots = slots_of(op, rounds);
  for (uint32_t slot = 0; slot < op.group.shape.in_flight; ++slot) {
    if ((slots >> slot & 1) == 0) continue;
    store_relaxed<Scope::gpu>(&state->sent_as[kind][slot],
                              last_ended(op.group, op.kind) - load_relaxed<Scope::gpu>(&state->skipped[kind]));
  }
  uint32_t* const pending = &state->pending[kind];
  store_relaxed<Scope::gpu>(pending, load_relaxed<Scope::gpu>(pending) | slots);
  store_relaxed<Scope::gpu>(&memory.state()->sent[kind], op.seq);
}

// Block verb: the one or the other. Wire::masks: the group may have some.
template <class Wire>
UCCLEP_FN void end_send_phase_of(const Op& op, const HandleMemory& memory, bool ok, uint32_t rounds = 1) {
  if (has_masks<Wire>(op.group)) {
    leave_pending(op, memory, ok);
  } else {
    end_send_phase(op, memory, ok, rounds);
  }
}

// Block verb: all of a launch, of one block, that takes the number of an operation whose rows leave later, in a group
// without masks (ReceivePhase::of finds it). As where an operation begins, what was read before is published: the next
// operation relies on it (P1).
template <class Args>
UCCLEP_FN void take_number(const Args& args, Kind kind, Operation name) {
  const OpState op_state = OpState::load(args.group, kind);
  const Op op = next_operation(args.group, kind, name, op_state);
  if (op_state.abort == 0 && op_state.last() != 0) publish_consumed(op, op_state.last());
  end_send_phase(op, HandleMemory{args.handle, args.group.shape}, op_state.abort == 0, 1);
}

// Block verb, last thing of a part of a phase that others follow: nothing ends, and the slot stays.
UCCLEP_FN void end_part(const Op& op, bool ok) {
  if (!ok) bulk_wait_written();  // a warp that gave up may have stores under way
  sync_block();
  if (thread_id() == 0) leave(op.group, op.kind, ok, true);
}

// The operation of a receive phase.
struct ReceivePhase {
  Op op;
  bool device_initiated;  // the send phase was a user's kernel, or has left it pending for the sake of masks
  bool any;               // there is one, and this launch is to run it

  // masks: the group may have some.
  template <bool masks = false, class Args>
  static UCCLEP_FN ReceivePhase of(const Args& args, Kind kind, Operation name) {
    const ucclEpDeviceGroup& group = args.group;
    const bool masked = masks && group.masks != nullptr, device_initiated = args.device_initiated || masked;
    const auto k = static_cast<uint32_t>(kind);
    HandleState* const state = HandleMemory{args.handle, group.shape}.state();
    const uint64_t seq = device_initiated ? last_ended(group, kind) + 1 : load_relaxed<Scope::gpu>(&state->sent[k]);
    bool any = !device_initiated || uniform(state->device_initiated[k] == seq ? 1u : 0u) != 0;
    if constexpr (masks) any = any && (!masked || begins(group, kind, seq));
    return {{group, kind, name, seq, group.shape.slot_of(seq)}, device_initiated, any};
  }

  // Block verb. Nothing is read after a fatal error: what came before may be half done. The word may be set between two
  // looks, so all threads go by what one of them saw. Who runs again has all that it reads, whoever is lost meanwhile.
  UCCLEP_FN bool may_read() const {
    const uint32_t word = load_relaxed<Scope::system>(op.group.abort_word);
    return every_thread(word == 0 || (op.group.again != 0 && word == leave_now));
  }

  // Block verb, last thing of the phase of an operation in so many rounds. Consumed words have no gaps: where an older
  // operation is pending, its end publishes.
  template <class Wire>
  UCCLEP_FN void end(bool ok, uint32_t rounds = 1) const {
    ok = every_thread(ok);
    if constexpr (Wire::network) ok = ok && Wire::all_in(op, rounds);
    if (device_initiated) {  // until now the group has taken no other operation of the kind
      const bool last = end_operation(op, ok, Wire::network);
      if constexpr (Wire::network) publish_read<Wire>(last);
      return;
    }
    if (!ok) bulk_wait_written();  // a warp that gave up may have stores under way
    sync_block();
    const auto kind = static_cast<uint32_t>(op.kind);
    bool out = false;
    if (thread_id() == 0) {
      out = leave(op.group, op.kind, ok, true);
      uint32_t* const pending = &op.group.state->pending[kind];
      if (out) mark(op, Mark::end);
      if (out) store_relaxed<Scope::gpu>(pending, load_relaxed<Scope::gpu>(pending) & ~slots_of(op, rounds));
    }
    if (!sync_block_or(out)) return;
    const uint64_t last = last_ended(op.group, op.kind);
    if (last_read(op, last) < op.seq) return;
    publish_consumed(op, last);
    if constexpr (Wire::network) Wire::send_consumed(op, last);
  }

 private:
  // Block verb. last: in the last block out. Peers with windows hear it when the next operation begins.
  template <class Wire>
  UCCLEP_FN void publish_read(bool last) const {
    if (last) Wire::send_consumed(op, op.seq);
  }
};

}  // namespace UCCLEP_SIMT_NAMESPACE
