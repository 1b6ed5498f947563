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

// Lane verb: a turn of the warps of that index.
UCCLEP_FN uint64_t take_turn_of(const Op& op, Turn what, uint32_t warp) {
  return fetch_add_relaxed<Scope::gpu>(&op.group.state->turns[warp].taken, TurnWord::one(what));
}

// Warp verbs. Each warp of a block has turns of its own, so that neighbouring shares are on different SMs. What they
// return is in lane 0 alone, and nobody has waited for it: turns that have been taken, and of begin_turn before its
// own.
UCCLEP_FN uint64_t begin_turn(const Op& op, Turn what) {
  return lane_id() == 0 ? take_turn_of(op, what, warp_id()) : 0;
}
UCCLEP_FN uint64_t look_at_turns(const Op& op) {
  return lane_id() == 0 ? load_relaxed<Scope::gpu>(&op.group.state->turns[warp_id()].taken) : 0;
}
// Of these: the block whose share it is. None of the grid: no share is left.
UCCLEP_FN uint32_t turn_in(uint64_t taken, Turn what) {
  return broadcast(TurnWord::of(taken, what), 0);
}

// Block verb: the same for a block. shared: a word in its shared memory.
UCCLEP_FN uint32_t take_turn_of_block(const Op& op, Turn what, uint32_t* shared) {
  if (thread_id() == 0) *shared = TurnWord::of(take_turn_of(op, what, 0), what);
  sync_block();
  const uint32_t turn = *shared;
  sync_block();
  return turn;
}

// Block verb: true in the first block of the grid that comes here.
UCCLEP_FN bool comes_first(const Op& op, Turn what) {
  return sync_block_or(thread_id() == 0 && TurnWord::of(take_turn_of(op, what, 0), what) == 0);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
