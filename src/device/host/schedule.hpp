// SPDX-License-Identifier: Apache-2.0
// Which lane runs next. A lane that has to wait switches straight to another one of its warp, else of its block; only
// when none of the block can run does the worker take over.
#pragma once
#include <bit>

#include "device/host/worker.hpp"

namespace ucclep::executor {

inline Lane& self() {
  return *static_cast<Lane*>(const_cast<LaneView*>(current));
}

// The lane that runs from here on, for the executor and for the program that has the kernel. NULL: the worker.
inline void set_current(Lane* lane) {
  current = lane;
  if (lane != nullptr) *lane->in->block->kernel_current = lane;
}

inline uint64_t bit_of(const Lane& lane) {
  return uint64_t{1} << lane.lane;
}
inline uint64_t bit_of(const Warp& warp) {
  return uint64_t{1} << warp.index;
}

// One of the set bits: the lowest, or with a seed any.
inline unsigned pick(uint64_t mask, Worker& worker) {
  if (!worker.seeded()) return static_cast<unsigned>(std::countr_zero(mask));
  const int turn = static_cast<int>(worker.random() & 63);
  return static_cast<unsigned>(std::countr_zero(std::rotr(mask, turn)) + turn) & 63;
}

inline Lane* next_lane(Warp& warp) {
  Block& block = *warp.block;
  Warp* from = &warp;
  if (warp.runnable == 0) block.runnable_warps &= ~bit_of(warp);
  if (warp.runnable == 0 || block.worker->seeded()) {
    if (block.runnable_warps == 0) return nullptr;
    from = &block.warps[pick(block.runnable_warps, *block.worker)];
  }
  return &from->lanes[pick(from->runnable, *block.worker)];
}

inline void start_lane(Lane& lane) {
  const size_t colour = lane.thread % 16 * 256;
  start_fiber(lane.fiber, lane.in->block->worker->stacks.take(), colour, &lane_main);
}

// `from` is the fibre that runs now; next == nullptr: the worker goes on.
inline void switch_lane(Fiber& from, Worker& worker, Lane* next, bool ends = false) {
  if (next != nullptr && next->fiber.context == nullptr) start_lane(*next);
  set_current(next);
  switch_fiber(from, next != nullptr ? next->fiber : worker.scheduler, ends);
}

// The block is dropped; the lane never goes on.
[[noreturn]] inline void complain(const Complaint& complaint) {
  Lane& me = self();
  Worker& worker = *me.in->block->worker;
  worker.complaint = complaint;
  worker.complaint.lane = &me;
  switch_lane(me.fiber, worker, nullptr);
  __builtin_unreachable();
}

inline void give_way(Lane& me) {
  Block& block = *me.in->block;
  if (block.deferred) [[unlikely]]
    advance_bulk(block);
  if (block.torn.count != 0) [[unlikely]]
    advance_torn(block);
  constexpr size_t reserve = 1024;
  if (static_cast<char*>(__builtin_frame_address(0)) < me.fiber.stack + reserve) [[unlikely]]
    complain({.trouble = Trouble::stack});
  Lane* next = next_lane(*me.in);
  if (next != &me) switch_lane(me.fiber, *block.worker, next);
}

// All lanes of the warp come here before any goes on (verbs.cpp). Orders nothing.
void rendezvous(Lane& me, Verb verb);

// Lockstep: the side of the wave that ran has come to its end, the other sides have their turn.
inline void release_held(Warp& warp) {
  warp.runnable |= warp.held;
  warp.held = 0;
}

}  // namespace ucclep::executor
