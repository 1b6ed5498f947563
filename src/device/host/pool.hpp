// SPDX-License-Identifier: Apache-2.0
// The threads that run the lanes of all devices of the process, and the blocks that wait for them.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread.hpp"
#include "device/host/launch.hpp"
#include "device/host/worker.hpp"

namespace ucclep::executor {

class Pool final : public BlockSource {
 public:
  // seed 0: lanes run in a fixed order. With a seed and one worker a schedule replays: what was queued while the gate
  // was shut begins together.
  Pool(unsigned workers, uint64_t seed);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The streams: called by a worker when the last block of a launch has ended.
  std::function<void(Launch&)> on_finished;
  // The streams: whether a gated pool should begin with what was submitted, or more is on its way.
  std::function<bool()> all_submitted;

  void submit(Launch& launch);
  void stop();  // blocks under way are dropped
  // No lane of the device runs afterwards. False: one that never gives way has not done so within a generous time.
  bool close(DeviceState& device);

  // --- for workers ---
  bool take(Ticket& ticket) override;
  void block_ended(Launch& launch) override;
  bool tend_gate() override;
  bool has_work() override;
  bool stopping() const override { return stopping_.load(std::memory_order_relaxed); }

 private:
  // Blocks of the device that nobody took are dropped before they begin, also of what follows in their streams.
  void drop_pending(const DeviceState& device);
  Launch* take_whole(const DeviceState& device);  // with all blocks that are left of it; null: none is pending
  auto first_pending(const DeviceState& device);  // the caller holds the lock
  bool takeable(const Launch& launch) const;

  const bool gated_;
  std::mutex mutex_;
  bool gate_open_;
  std::deque<Launch*> pending_;  // launches with blocks that nobody took, in the order of their submission
  std::atomic<bool> stopping_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<ServiceThread> threads_;
};

}  // namespace ucclep::executor
