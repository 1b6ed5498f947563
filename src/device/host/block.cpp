// SPDX-License-Identifier: Apache-2.0
// The beginning and the end of a block.
#include <algorithm>
#include <new>

#include "device/host/identities.hpp"
#include "device/host/schedule.hpp"

namespace ucclep::executor {
namespace {

void reserve(Pages& pages, size_t bytes) {
  if (pages.bytes() < bytes) pages = Pages(bytes);
}

// Of a lane in its launch.
size_t number_of(const Block& block, unsigned thread) {
  return size_t{block.index} * block.size + thread;
}

uint64_t low_bits(unsigned count) {
  return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

void begin_warp(Block& block, unsigned index, unsigned wave) {
  Warp& warp = block.warps[index];
  const unsigned first = index * wave;
  warp.block = &block;
  warp.lanes = block.lanes + first;
  warp.index = index;
  warp.last_lane = wave - 1;
  warp.verb = Verb::none;
  warp.generation = 0;
  warp.all = low_bits(std::min(wave, block.size - first));
  warp.runnable = warp.all;
  warp.held = warp.spinning = warp.waiting = warp.at_barrier = warp.ended = 0;
  warp.loads_pending = 0;
  warp.stores_unread = false;
  warp.result[0] = warp.result[1] = 0;
}

// What comes before the lanes. All of them begin here: one that began later would seem to know what others of its block
// did before they ended.
void order_lanes(Block& block) {
  for (unsigned i = 0; i < block.size; ++i) {
    assume_identity(block.lanes[i].fiber);
    order_after(&block.launch->begun);
    order_after(block.lanes);
    order_after(block.lanes[i].fiber.stack);
  }
  assume_identity(block.worker->scheduler);
}

}  // namespace

void begin_block(Block& block, Launch& launch, unsigned index, Worker& worker) {
  const unsigned wave = launch.device->wave;
  const unsigned size = launch.shape.block;
  reserve(block.lane_memory, size * sizeof(Lane));
  reserve(block.shared_memory, launch.shape.shared_bytes);
  const unsigned warps = (size + wave - 1) / wave;
  block.warps.resize(warps);
  worker.stacks.reserve(size);
  block.launch = &launch;
  block.worker = &worker;
  block.kernel_current = launch.code.current_slot();
  block.index = index;
  block.size = size;
  block.live = size;
  block.arrived = 0;
  block.vote[0] = block.vote[1] = false;
  block.lockstep = launch.device->lockstep;
  block.deferred = launch.device->deferred;
  block.lanes = reinterpret_cast<Lane*>(block.lane_memory.data());
  block.runnable_warps = low_bits(warps);
  block.spinning_warps = 0;
  for (unsigned i = 0; i < warps; ++i) begin_warp(block, i, wave);
  for (unsigned i = 0; i < size; ++i) {
    Lane& lane = *new (block.lanes + i) Lane;
    lane.thread = i;
    lane.lane = i % wave;
    lane.warp = i / wave;
    lane.block = index;
    lane.block_size = size;
    lane.grid_size = launch.shape.grid;
    lane.shared = block.shared_memory.data();
    lane.torn = launch.device->torn;
    lane.in = &block.warps[lane.warp];
    launch.identities->lend(number_of(block, i), lane.fiber);
    // Else a lane begins when another first switches to it. ThreadSanitizer must not take the memory that costs for
    // something that one lane did and another uses.
    if (under_tsan) start_lane(lane);
  }
  order_before(block.lanes);  // this thread has mapped their memory, perhaps only now
  if (under_tsan) order_lanes(block);
  begin_bulk(block);
  if (launch.device->torn != 0) reserve_torn(block);
}

void end_block(Block& block) {
  for (unsigned i = 0; i < block.size; ++i) {
    Lane& lane = block.lanes[i];
    if (lane.fiber.stack != nullptr) {  // dropped where it stands
      assume_identity(lane.fiber);
      order_before(block.launch->order);
      order_before(block.lanes);
      order_before(lane.fiber.stack);
      assume_identity(block.worker->scheduler);
      block.worker->stacks.give(lane.fiber.stack);
    }
    block.launch->identities->give_back(number_of(block, i), lane.fiber);
  }
  block.worker->stacks.release(block.size);
  end_bulk(block);
  block.torn.count = 0;
}

}  // namespace ucclep::executor
