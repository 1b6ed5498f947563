// SPDX-License-Identifier: Apache-2.0
// What the executor knows of lanes, warps and blocks. All of it belongs to one worker, and is touched by nobody else.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "device/host/fiber.hpp"
#include "device/host/launch.hpp"
#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep::executor {

constexpr unsigned max_wave = 64;
constexpr unsigned max_block_threads = 1024;

struct Warp;
struct Block;
class Worker;
struct BulkState;
struct BulkDeleter {
  BulkDeleter();
  void operator()(BulkState* state) const;
};

// A part of a line that a lane has stored, and nobody sees yet.
struct TornPart {
  uint64_t* to;
  uint64_t words[2];
  uint32_t bytes;   // 8, or 16: both words
  uint32_t one_in;  // how often it becomes visible when it may
};
struct TornParts {
  Pages memory;
  size_t count = 0;
  TornPart* list() { return reinterpret_cast<TornPart*>(memory.data()); }
};

struct Lane : LaneView {
  Fiber fiber;
  Warp* in = nullptr;
  const void* last_poll = nullptr;  // when it spins: what it waits for
  bool paused = false;              // since the last poll
  unsigned polls = 0;               // since the last pause
  uintptr_t polled = 0;             // the sum of their addresses: the same again and again is the same wait
  uintptr_t waits[2] = {0, 0};      // the last two such sums: now and then a wait also polls an abort word
};

// One bit per lane. A lane that has not ended is in exactly one of runnable, held, spinning, waiting, at_barrier.
struct Warp {
  Block* block = nullptr;
  Lane* lanes = nullptr;
  unsigned index = 0;
  Verb verb = Verb::none;   // at which `waiting` lanes wait
  unsigned last_lane = 0;   // wave size - 1
  unsigned generation = 0;  // of rendezvous, modulo 2
  uint64_t all = 0;         // the lanes that the warp began with
  uint64_t runnable = 0;
  uint64_t held = 0;      // lockstep: they run when the lane that spins reconverges
  uint64_t spinning = 0;  // run again when all others had their turn
  uint64_t waiting = 0;   // for the rest of the warp
  uint64_t at_barrier = 0;
  uint64_t ended = 0;
  unsigned loads_pending = 0;  // bulk copies that the warp must still wait for
  bool stores_unread = false;
  // Double-buffered: a lane reads the results of one rendezvous while others are already at the next.
  uint64_t result[2] = {0, 0};
  uint64_t values[2][max_wave];
};

struct Block {
  Launch* launch = nullptr;
  Worker* worker = nullptr;
  unsigned index = 0;
  unsigned size = 0;
  unsigned live = 0;     // threads that have not ended
  unsigned arrived = 0;  // threads at the block's barrier
  unsigned generation = 0;
  bool vote[2] = {false, false};
  bool lockstep = false;
  bool deferred = false;
  uint64_t runnable_warps = 0;
  uint64_t spinning_warps = 0;
  uint64_t events = 0;  // signs that the block gets on: lanes that end, copies, waits that are not the ones before
  std::vector<Warp> warps;
  Lane* lanes = nullptr;
  const LaneView** kernel_current = nullptr;  // `current` of the kernel's program, on this thread
  Pages lane_memory;
  Pages shared_memory;
  std::unique_ptr<BulkState, BulkDeleter> bulk;  // deferred copies only
  TornParts torn;                                // torn mode only
};

// Why a block cannot go on. Put into words on the worker's own stack.
enum class Trouble : uint8_t { none, mismatch, ended_early, exception, stack, bulk_misuse, stuck };

struct Complaint {
  Trouble trouble = Trouble::none;
  Lane* lane = nullptr;          // who does it
  const char* does = nullptr;    // "calls sync_block"
  Lane* other = nullptr;         // who contradicts it
  const char* detail = nullptr;  // and how
};

}  // namespace ucclep::executor
