// SPDX-License-Identifier: Apache-2.0
// One thread of the pool: it takes blocks, and lets the lanes of those that it has taken switch to one another.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "device/host/state.hpp"

namespace ucclep::executor {

// Where a worker gets its blocks: the pool.
class BlockSource {
 public:
  struct Ticket {
    Launch* launch;
    unsigned block;
  };
  virtual bool take(Ticket& ticket) = 0;
  virtual void block_ended(Launch& launch) = 0;
  // Called while nothing of this worker is resident: with a gate and hence one worker, nothing of the pool. True: the
  // gate holds something back, and wants to be looked after again soon.
  virtual bool tend_gate() = 0;
  virtual bool has_work() = 0;
  virtual bool stopping() const = 0;

 protected:
  ~BlockSource() = default;
};

class Worker {
 public:
  Worker(BlockSource& pool, unsigned index, uint64_t seed);
  ~Worker();
  void run();  // until the pool stops

  // For lanes: they read and change this from the worker's own thread.
  Fiber scheduler;
  StackPool stacks;
  Complaint complaint;

  bool seeded() const { return seeded_; }
  uint64_t random() {  // xorshift64*
    random_ ^= random_ >> 12;
    random_ ^= random_ << 25;
    random_ ^= random_ >> 27;
    return random_ * 0x2545f4914f6cdd1dull;
  }

 private:
  bool pass();  // every resident block has a turn; true if anything but spinning happened
  bool visit(Block& block);
  void retire(size_t resident_index);
  bool admit();  // takes blocks from the pool
  void idle();
  void fault(Block& block, const Complaint& complaint);
  void watch(Block& block);

  BlockSource& pool_;
  const bool seeded_;
  uint64_t random_;
  int64_t idle_since_ns_ = 0;
  std::vector<std::unique_ptr<Block>> resident_;
  std::vector<std::unique_ptr<Block>> spare_;
};

// block.cpp
void begin_block(Block& block, Launch& launch, unsigned index, Worker& worker);
void end_block(Block& block);  // also one whose lanes are dropped where they stand
// bulk.cpp. Bulk copies. Usually a copy is done where it is issued. In deferred mode it is done as a GPU would: by
// another agent, some time before the wait that needs it, its source and its destination each at a moment of their own.
void begin_bulk(Block& block);
void end_bulk(Block& block);  // what is still pending is forgotten
// Deferred mode: each of the block's pending copies may take a step now.
void advance_bulk(Block& block);
// Deferred mode: bulk copies that the block issues from here on see what the lane did.
void fence_bulk(Block& block, Verb verb);
// Called by the last lane of the warp: what is left is written; complains of what should have been waited for.
void finish_bulk(Lane& me);
// torn.cpp. Parts of lines in torn mode: each becomes visible some time after its store, by itself.
void reserve_torn(Block& block);
// Some of them become visible now.
void advance_torn(Block& block);
// verbs.cpp: runs the block's lanes until none is runnable.
void run_lanes(Block& block);
// The fibre of a lane.
void lane_main(boost::context::detail::transfer_t from);

// diagnose.cpp
std::string describe(const Block& block, const Complaint& complaint);
Complaint find_stuck(Block& block);
const char* name_of(Verb verb);

}  // namespace ucclep::executor
