// SPDX-License-Identifier: Apache-2.0
// What a grid sends that is waited for, where each of its blocks also waits: it is shared out as if by block, but a
// block takes the shares by turns, until none is left. Each share that was taken is that of a block that runs, and
// nobody waits who could take another one. So all of them leave, however few blocks are resident, and with all resident
// each takes one. The last block out begins the turns anew (leave).
#pragma once
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN uint32_t* turns_of(const Op& op, Turn what, uint32_t warp) {
  return &op.group.state->turns[static_cast<uint32_t>(op.kind)][warp].taken[static_cast<uint32_t>(what)];
}

// Warp verbs. Each warp of a block has turns of its own, so that neighbouring shares are on different SMs. What they
// return is in lane 0 alone, and nobody has waited for it: the turns that were taken, of begin_turn before its own.
UCCLEP_FN uint32_t begin_turn(const Op& op, Turn what) {
  return lane_id() == 0 ? fetch_add_relaxed<Scope::gpu>(turns_of(op, what, warp_id()), 1u) : 0;
}
UCCLEP_FN uint32_t look_at_turns(const Op& op, Turn what) {
  return lane_id() == 0 ? load_relaxed<Scope::gpu>(turns_of(op, what, warp_id())) : 0;
}
constexpr uint32_t no_turn = 0xffffffffu;
// Of these: the block whose share it is, of all rounds one after the other. None of the grid: no share is left.
UCCLEP_FN uint32_t turn_in(uint32_t taken) {
  return broadcast(taken, 0);
}

// Block verb: the same for a block. shared: a word in its shared memory.
UCCLEP_FN uint32_t take_turn_of_block(const Op& op, Turn what, uint32_t* shared) {
  if (thread_id() == 0) *shared = fetch_add_relaxed<Scope::gpu>(turns_of(op, what, 0), 1u);
  sync_block();
  const uint32_t turn = *shared;
  sync_block();
  return turn;
}

// Block verb: true in the first block of the grid that comes here.
UCCLEP_FN bool comes_first(const Op& op, Turn what) {
  return sync_block_or(thread_id() == 0 && fetch_add_relaxed<Scope::gpu>(turns_of(op, what, 0), 1u) == 0);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
