// SPDX-License-Identifier: Apache-2.0
// The verbs at which a lane gives way to others. A rendezvous costs one switch per lane: all but the last to come wait,
// the last one works out the result and goes on.
#include <algorithm>

#include "device/host/runtime.hpp"
#include "device/host/schedule.hpp"

namespace ucclep::executor {

namespace {

Lane* first_of(Warp& warp, uint64_t lanes) {
  return &warp.lanes[std::countr_zero(lanes)];
}

[[noreturn]] void mismatch(Lane& me, Verb verb) {
  Warp& warp = *me.in;
  Complaint complaint{.trouble = Trouble::mismatch, .does = name_of(verb)};
  if (warp.waiting != 0) {
    complaint.other = first_of(warp, warp.waiting);
    complaint.detail = name_of(warp.verb);
  } else if (warp.at_barrier != 0) {
    complaint.other = first_of(warp, warp.at_barrier);
    complaint.detail = "sync_block";
  } else {
    complaint.trouble = Trouble::ended_early;
    complaint.other = first_of(warp, warp.ended);
  }
  complain(complaint);
}

void match(uint64_t* values, uint64_t lanes) {
  uint64_t masks[max_wave];
  for (uint64_t rest = lanes; rest != 0;) {
    const uint64_t value = values[std::countr_zero(rest)];
    uint64_t same = 0;
    for (uint64_t left = rest; left != 0; left &= left - 1) {
      if (values[std::countr_zero(left)] == value) same |= left & -left;
    }
    for (uint64_t left = same; left != 0; left &= left - 1) masks[std::countr_zero(left)] = same;
    rest &= ~same;
  }
  for (uint64_t left = lanes; left != 0; left &= left - 1)
    values[std::countr_zero(left)] = masks[std::countr_zero(left)];
}

template <class Join>
uint64_t fold(const uint64_t* values, uint64_t lanes, Join join) {
  uint64_t total = values[std::countr_zero(lanes)];
  for (uint64_t left = lanes & (lanes - 1); left != 0; left &= left - 1) {
    total = join(total, values[std::countr_zero(left)]);
  }
  return total;
}

// By the last lane to come, once for all.
void work_out(Warp& warp, Verb verb) {
  uint64_t* values = warp.values[warp.generation];
  uint64_t& result = warp.result[warp.generation];
  switch (verb) {
    case Verb::match_any:
      return match(values, warp.all);
    case Verb::reduce_add:
      result = fold(values, warp.all, [](uint64_t a, uint64_t b) { return a + b; });
      return;
    case Verb::reduce_max:
      result = fold(values, warp.all, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
      return;
    case Verb::reduce_min:
      result = fold(values, warp.all, [](uint64_t a, uint64_t b) { return a < b ? a : b; });
      return;
    case Verb::scan_add: {
      uint64_t sum = 0;
      for (uint64_t left = warp.all; left != 0; left &= left - 1) {
        uint64_t& value = values[std::countr_zero(left)];
        value = sum += value;
      }
      return;
    }
    default:
      return;
  }
}

}  // namespace

void rendezvous(Lane& me, Verb verb) {
  Warp& warp = *me.in;
  if (warp.waiting == 0) {
    if ((warp.ended | warp.at_barrier) != 0) [[unlikely]]
      mismatch(me, verb);
    warp.verb = verb;
  } else if (warp.verb != verb) [[unlikely]] {
    mismatch(me, verb);
  }
  warp.waiting |= bit_of(me);
  warp.runnable &= ~bit_of(me);
  me.last_poll = nullptr;  // who looks at a word once between two warp verbs does not spin
  release_held(warp);
  if (warp.waiting != warp.all) return give_way(me);
  work_out(warp, verb);
  warp.waiting = 0;
  warp.runnable = warp.all;
  warp.generation ^= 1;
  warp.result[warp.generation] = 0;  // all have read it: they came here
  // With a seed the last one to come is not always the first one to go on.
  if (warp.block->worker->seeded()) give_way(me);
}

namespace {

void open_barrier(Block& block) {
  for (Warp& warp : block.warps) {
    warp.runnable = warp.all;
    warp.at_barrier = 0;
    block.runnable_warps |= bit_of(warp);
  }
  block.arrived = 0;
  block.generation ^= 1;
  block.vote[block.generation] = false;  // all have read it: they came here
}

Lane* an_ended_lane(Block& block) {
  for (Warp& warp : block.warps) {
    if (warp.ended != 0) return first_of(warp, warp.ended);
  }
  return nullptr;
}

Lane* a_lane_at_barrier(Block& block) {
  for (Warp& warp : block.warps) {
    if (warp.at_barrier != 0) return first_of(warp, warp.at_barrier);
  }
  return nullptr;
}

// The lane's function has returned. Returns when the fibre goes on as another lane, which has not begun yet.
void end_lane(Lane& me) {
  Warp& warp = *me.in;
  Block& block = *warp.block;
  if (warp.waiting != 0)
    complain({Trouble::ended_early, nullptr, nullptr, first_of(warp, warp.waiting), name_of(warp.verb)});
  if (block.arrived != 0) complain({Trouble::ended_early, nullptr, nullptr, a_lane_at_barrier(block), "sync_block"});
  order_before(block.launch->order);
  order_before(block.lanes);
  order_before(me.fiber.stack);
  if ((warp.ended | bit_of(me)) == warp.all) finish_bulk(me);
  if (block.live == 1) flush_torn();
  warp.runnable &= ~bit_of(me);
  warp.ended |= bit_of(me);
  release_held(warp);
  --block.live;
  ++block.events;
  Lane* next = next_lane(warp);
  if (next != nullptr && next->fiber.context == nullptr) {
    adopt_stack(me.fiber, next->fiber);
    set_current(next);
    return;
  }
  // Nobody begins on the stack before this fibre has left it: the next thing is the switch.
  block.worker->stacks.give(std::exchange(me.fiber.stack, nullptr));
  switch_lane(me.fiber, *block.worker, next, true);
}

}  // namespace

uint64_t exchange(Verb verb, uint64_t value, uint32_t argument) {
  Lane& me = self();
  Warp& warp = *me.in;
  const uint64_t* values = warp.values[warp.generation];
  const uint64_t& result = warp.result[warp.generation];
  if (verb == Verb::ballot) {
    warp.result[warp.generation] |= value != 0 ? bit_of(me) : 0;
  } else {
    warp.values[warp.generation][me.lane] = value;
  }
  rendezvous(me, verb);
  switch (verb) {
    case Verb::shfl:
      return values[argument & warp.last_lane];
    case Verb::shfl_xor:
      return values[(me.lane ^ argument) & warp.last_lane];
    case Verb::shfl_up:
      return me.lane >= argument ? values[me.lane - argument] : value;
    case Verb::match_any:
    case Verb::scan_add:
      return values[me.lane];
    default:
      return result;
  }
}

void order_warp(Verb verb) {
  Lane& me = self();
  Warp& warp = *me.in;
  order_before(&warp);
  // A fence between the lanes' own accesses and bulk copies.
  if (warp.block->deferred && (verb == Verb::smem_to_bulk || verb == Verb::acquire_then_bulk))
    fence_bulk(*warp.block, verb);
  rendezvous(me, verb);
  order_after(&warp);
}

bool sync_block(bool vote) {
  Lane& me = self();
  Warp& warp = *me.in;
  Block& block = *warp.block;
  if (warp.waiting != 0) [[unlikely]]
    complain({Trouble::mismatch, nullptr, "sync_block", first_of(warp, warp.waiting), name_of(warp.verb)});
  if (block.live != block.size) [[unlikely]]
    complain({Trouble::ended_early, nullptr, "sync_block", an_ended_lane(block), nullptr});
  order_before(&block);
  const bool& result = block.vote[block.generation];
  block.vote[block.generation] |= vote;
  warp.runnable &= ~bit_of(me);
  warp.at_barrier |= bit_of(me);
  release_held(warp);
  if (++block.arrived == block.size) {
    open_barrier(block);
    if (block.worker->seeded()) give_way(me);
  } else {
    give_way(me);
  }
  order_after(&block);
  return result;
}

void pause() {
  Lane& me = self();
  Warp& warp = *me.in;
  Block& block = *warp.block;
  if (me.polled != me.waits[0] && me.polled != me.waits[1]) {
    me.waits[1] = std::exchange(me.waits[0], me.polled);
    ++block.events;
  }
  warp.runnable &= ~bit_of(me);
  warp.spinning |= bit_of(me);
  block.spinning_warps |= bit_of(warp);
  if (block.lockstep) {
    warp.held |= warp.runnable;
    warp.runnable = 0;
  }
  give_way(me);
  me.paused = true;
  me.polls = 0;
  me.polled = 0;
}

void poll(const void* address) {
  Lane& me = self();
  // Also a loop over several words, or one that forgot to pause, lets others run.
  constexpr unsigned patience = 256;
  me.polled += reinterpret_cast<uintptr_t>(address);
  const bool again = me.last_poll == address && !me.paused;
  me.last_poll = address;
  me.paused = false;
  if (again || ++me.polls == patience) pause();
}

void lane_main(boost::context::detail::transfer_t from) {
  arrive_first(from);
  while (true) {
    const Launch& launch = *self().in->block->launch;
    bool thrown = false;
    try {
      launch.code.function(launch.args.get());
    } catch (...) {
      thrown = true;  // a fibre must not be left inside a handler: exceptions are counted per thread
    }
    if (thrown) complain({.trouble = Trouble::exception});
    end_lane(self());
  }
}

void run_lanes(Block& block) {
  for (uint64_t warps = block.spinning_warps; warps != 0; warps &= warps - 1) {
    Warp& warp = block.warps[std::countr_zero(warps)];
    warp.runnable |= std::exchange(warp.spinning, 0);
  }
  block.runnable_warps |= std::exchange(block.spinning_warps, 0);
  // A live lane that is neither runnable nor spinning waits for lanes that are: whoever made that impossible,
  // complained.
  Warp& warp = block.warps[pick(block.runnable_warps, *block.worker)];
  Lane& lane = warp.lanes[pick(warp.runnable, *block.worker)];
  switch_lane(block.worker->scheduler, *block.worker, &lane);
}

}  // namespace ucclep::executor
