// SPDX-License-Identifier: Apache-2.0
// One thread of the pool: it takes blocks, and lets the lanes of those that it has taken switch to one another.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "device/host/state.hpp"

namespace ucclep::executor {

class Pool;

class Worker {
 public:
  Worker(Pool& pool, unsigned index, uint64_t seed);
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

  Pool& pool_;
  const bool seeded_;
  uint64_t random_;
  int64_t idle_since_ns_ = 0;
  std::vector<std::unique_ptr<Block>> resident_;
  std::vector<std::unique_ptr<Block>> spare_;
};

// block.cpp
void begin_block(Block& block, Launch& launch, unsigned index, Worker& worker);
void end_block(Block& block);  // also one whose lanes are dropped where they stand
// verbs.cpp: runs the block's lanes until none is runnable.
void run_lanes(Block& block);
// The fibre of a lane.
void lane_main(boost::context::detail::transfer_t from);

// diagnose.cpp
std::string describe(const Block& block, const Complaint& complaint);
Complaint find_stuck(Block& block);
const char* name_of(Verb verb);

}  // namespace ucclep::executor
