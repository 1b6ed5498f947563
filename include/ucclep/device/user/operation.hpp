// SPDX-License-Identifier: Apache-2.0
// What device-initiated dispatch and combine share, in LL (ll_dispatch.hpp, ll_combine.hpp)
// and in HT (ht_dispatch.hpp, ht_combine.hpp): rows leave when they are ready, not when the kernel has ended.
// The receive phase is ucclEpCompleteDispatch or ucclEpCompleteCombine, on a stream after the kernel; until it has
// ended, the group takes no other operation of that kind, and the handle none at all.
//
// The kernel is launched with all its blocks resident at once. A block has a multiple of wave_size threads, at most
// 512. The handle is a parameter of the kernel.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/eviction.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace ucclep {

// The rows of an operation: the same on all ranks, and for all rows.
struct RowShape {
  uint32_t hidden;                                  // elements; a row's bytes are a multiple of 16
  ucclEpDataType_t dtype;                           // combine: bf16, fp16 or fp32
  uint32_t scale_bytes = 0;                         // of a row; 0: no scales
  uint32_t top_k = 0;                               // LL: the group's; a row with fewer has -1. HT: the routing's
  ucclEpDataType_t scale_dtype = ucclEpNoDataType;  // with scale_bytes
  bool weighted = false;                            // rows come with weights; in EXPERT_MAJOR of LL they always do
  int pass = UCCLEP_PASS_FORWARD;                   // of an HT operation

  // Bytes of an element.
  UCCLEP_HD constexpr uint32_t element_bytes() const { return ucclep::element_bytes(dtype); }
  // Bytes of a row, without scales.
  UCCLEP_HD constexpr uint32_t token_bytes() const { return hidden * element_bytes(); }
  // Can combine sum such rows?
  UCCLEP_HD constexpr bool sums() const {
    return dtype == ucclEpBfloat16 || dtype == ucclEpFloat16 || dtype == ucclEpFloat32;
  }
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

// An operation that is pending, as every thread of the grid holds it.
struct DeviceOperation {
  const ucclEpDeviceHandle& handle;
  RowShape shape;
  Settings settings;
  uint64_t seq;  // 0: none begins here, as another is pending
  WarpUniform slot;
  bool ok;  // false: the group has failed, or the shape does not fit. Sends do nothing

  UCCLEP_FN Op of(Kind kind, Operation name) const { return {handle.group, kind, name, seq, slot}; }
  UCCLEP_FN HandleMemory memory() const { return {handle.view, handle.group.shape}; }
  UCCLEP_FN bool by_expert() const {
    return handle.view.layout == UCCLEP_LAYOUT_EXPERT_MAJOR || handle.view.layout == UCCLEP_LAYOUT_TILES;
  }
};

// Most operations are of a group whose ranks all reach each other's memory, without masks. A call has their code where
// it stands; what serves the others as well is one function for the whole kernel, of the same text: where the first
// stands, the compiler knows what does not apply. body: a lambda that copies what it needs, since what a function has
// the address of is no longer held in registers.
template <class Body>
UCCLEP_COLD_FN auto in_any_group(const Op op, const Body body) {
  return body(op);
}
// body(op), with what does not apply left out where it does not.
template <class Body>
UCCLEP_FN auto in_group_of(const Op& op, const Body& body) {
  if (op.group.network == nullptr && op.group.masks == nullptr && op.group.shape.lines_only()) {
    return body(Op{op.group, op.kind, op.name, op.seq, op.slot, op.round, MayMeet{false, false, false}});
  }
  return in_any_group(op, body);
}

namespace ll {

// A dispatch of LL that is pending.
struct OpenDispatch : DeviceOperation {
  WireShape wire;          // how rows lie on the wire
  Form form;               // in which of the wire forms
  bool announced = false;  // what follows from the routing has left with begin

  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::dispatch, Operation::dispatch); }
};

// A combine of LL that is pending.
struct OpenCombine : DeviceOperation {
  bool beside;            // the dispatch whose rows it returns may be under way
  OpenDispatch dispatch;  // that

  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::combine, Operation::combine); }
};

}  // namespace ll

// All threads of some blocks: the first record stays.
UCCLEP_FN void refuse(const Op& op, Field field, uint64_t expected, uint64_t got) {
  if (thread_id() != 0) return;
  ErrorRecord record = record_of(op, ucclEpInvalidArgument, Phase::shape, -1);
  record.field = field;
  record.expected = expected;
  record.got = got;
  report_data(op.group.errors, record);
}

constexpr uint32_t max_threads = 512;  // of a block (simt/simt.hpp)

// Do shape and block fit the group and the handle, whose mode has to be this one, with rows of top_k experts? If not, a
// data record says why. tiles: the operation is of a handle with tiles.
UCCLEP_FN bool fits(const Op& op, const ucclEpDeviceHandle& handle, const RowShape& shape, int mode, uint32_t top_k,
                    bool tiles = false) {
  const GroupShape& group = handle.group.shape;
  const uint64_t token_bytes = uint64_t{shape.hidden} * shape.element_bytes();
  const uint64_t bytes = round_up(token_bytes, 16) + round_up(uint64_t{shape.scale_bytes}, 16);
  if (block_size() > max_threads || block_size() % wave_size != 0) {
    refuse(op, Field::threads, max_threads, block_size());
  } else if (handle.view.mode != mode) {
    refuse(op, Field::mode, static_cast<uint64_t>(mode), static_cast<uint64_t>(handle.view.mode));
  } else if (tiles != (handle.view.tile_rows != 0)) {
    const uint64_t expected = tiles ? UCCLEP_LAYOUT_TILES : UCCLEP_LAYOUT_EXPERT_MAJOR;
    refuse(op, Field::layout, expected, static_cast<uint64_t>(handle.view.layout));
  } else if (shape.pass != UCCLEP_PASS_FORWARD && (mode == UCCLEP_MODE_LL || shape.pass != UCCLEP_PASS_BACKWARD)) {
    refuse(op, Field::pass, UCCLEP_PASS_FORWARD, static_cast<uint64_t>(shape.pass));
  } else if (shape.hidden == 0 || token_bytes % 16 != 0 || bytes > group.token_bytes) {
    refuse(op, Field::hidden, group.token_bytes, bytes);
  } else if (shape.top_k != top_k) {
    refuse(op, Field::top_k, top_k, shape.top_k);
  } else {
    return true;
  }
  return false;
}

// Block verb, in a group with masks: has the handle a pending operation, or the group one of this kind, that a kernel
// could not receive. ucclEpComplete receives it, and nothing begins before.
// beside: one of another kind may be under way.
UCCLEP_FN bool still_pending(const Op& op, const ucclEpDeviceHandle& handle, bool beside) {
  GroupMasks* const masks = op.group.masks;
  if (masks == nullptr) return false;
  const HandleState* const state = HandleMemory{handle.view, handle.group.shape}.state();
  bool pending = load_relaxed<Scope::gpu>(&masks->begun[static_cast<uint32_t>(op.kind)]) == op.seq;
  for (uint32_t kind = 0; kind < num_kinds; ++kind) {
    if (beside && kind != static_cast<uint32_t>(op.kind)) continue;
    const uint64_t last = last_ended(op.group, static_cast<Kind>(kind));
    pending = pending || load_relaxed<Scope::gpu>(&state->device_initiated[kind]) == last + 1;
  }
  return !every_thread(!pending);
}

// Block verb of every block: the operation that begins, or one with the number 0.
UCCLEP_FN Op begin_next(const ucclEpDeviceHandle& handle, Kind kind, Operation name, const OpState& op_state,
                        bool beside = false) {
  const Op op = next_operation(handle.group, kind, name, op_state);
  if (still_pending(op, handle, beside)) return {handle.group, kind, name, 0, 0};
  return op;
}

// Block verb, before anything is sent: slots_free, in a group of any kind.
UCCLEP_FN bool slots_free_in_any_group(const Op& op, const OpState& op_state) {
  if (op.networked()) return slots_free(op, op_state, ByNetwork::Consumed{});
  return slots_free(op, op_state, ConsumedMasked{});
}

// Block verb, last thing of what a block sends: true in the last block out, which sees all that the others wrote, if
// none of them has failed. Operations of two kinds may be under way. ok: this block has not failed.
UCCLEP_FN bool last_out(const DeviceOperation& open, Kind kind, bool ok) {
  if (open.seq == 0) return false;  // some blocks may not come, and the next launch counts from 0
  sync_block();
  return sync_block_or(thread_id() == 0 && leave(open.handle.group, kind, ok, true));
}
// The same where nothing can have failed since the operation began.
UCCLEP_FN bool last_out(const DeviceOperation& open, Kind kind) {
  return last_out(open, kind, open.ok);
}

// Block verb, before the last block out stores more: no peer has masked this rank since the operation began (P13).
UCCLEP_FN bool may_store(const Op& op) {
  return op.group.masks == nullptr || every_thread(!was_evicted(op.group));
}

// Block verb: waits until an operation that the grid receives has ended here: what its calls have read and written, in
// all blocks, is ordered before what follows, and the next of its kind may begin. Of a combine that was begun beside
// its dispatch: both. No barrier of the grid is needed then. False: it has failed, or has not ended in time.
UCCLEP_FN bool await_end(block, const DeviceOperation& open, Kind kind) {
  bool ok = open.ok;
  if (ok && thread_id() == 0) {
    const Op op = open.of(kind, kind == Kind::combine ? Operation::combine : Operation::dispatch);
    const uint64_t* const ended = &op.group.state->ended[static_cast<uint32_t>(kind)];
    const Wait wait = begin_wait_for_blocks(op.group);
    ok = wait_until(wait, [&] { return EndedWord::seq(load_acquire<Scope::gpu>(ended)) >= op.seq; });
    if (!ok && op.group.masks == nullptr) report_blocks(op, wait);
  }
  return every_thread(ok);
}

// Verb of the last block out: the operation is for its receive phase, or for who receives it in the kernel. With masks
// it has begun only now, so that one that has not begun needs no repair.
UCCLEP_FN void leave_to_receive(const DeviceOperation& open, Kind kind) {
  const auto k = static_cast<uint32_t>(kind);
  GroupMasks* const masks = open.handle.group.masks;
  sync_block();  // what all threads have written is released
  if (thread_id() == 0) {
    if (masks != nullptr) {
      store_relaxed<Scope::gpu>(&masks->begun[k], open.seq);
      store_relaxed<Scope::gpu>(&masks->pending[k], open.seq);
    }
    store_release<Scope::gpu>(&open.memory().state()->device_initiated[k], open.seq);
  }
  sync_block();  // a lane of its warp may wait for it next
}

}  // namespace UCCLEP_SIMT_NAMESPACE
