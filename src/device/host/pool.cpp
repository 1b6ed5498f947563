// SPDX-License-Identifier: Apache-2.0
#include "device/host/pool.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "device/host/clock.hpp"
#include "device/host/sleep.hpp"
#include "device/host/worker.hpp"

namespace ucclep::executor {

Pool::Pool(unsigned workers, uint64_t seed) : gated_(seed != 0 && workers == 1), gate_open_(!gated_) {
  for (unsigned i = 0; i < workers; ++i) workers_.push_back(std::make_unique<Worker>(*this, i, seed));
  try {
    for (auto& worker : workers_) {
      threads_.push_back(start_service_thread("ucclep-lanes", -1, [&worker = *worker] { worker.run(); }));
    }
  } catch (...) {
    stop();  // a thread that nobody joins would end the process
    throw;
  }
}

Pool::~Pool() {
  stop();
}

void Pool::stop() {
  stopping_ = true;
  wake_sleepers();
  threads_.clear();  // joined
}

void Pool::submit(Launch& launch) {
  launch.unfinished = launch.shape.grid;
  launch.progress_ns = now_ns();
  {
    std::lock_guard lock(mutex_);
    pending_.push_back(&launch);
  }
  wake_sleepers();
}

void Pool::drop_pending(const DeviceState& device) {
  while (Launch* const launch = take_whole(device)) {
    const unsigned blocks = launch->shape.grid - launch->next_block;
    if (launch->unfinished.fetch_sub(blocks, std::memory_order_acq_rel) == blocks) on_finished(*launch);
  }
}

auto Pool::first_pending(const DeviceState& device) {
  return std::ranges::find_if(pending_, [&](const Launch* launch) { return launch->device.get() == &device; });
}

Launch* Pool::take_whole(const DeviceState& device) {
  std::lock_guard lock(mutex_);
  const auto it = first_pending(device);
  if (it == pending_.end()) return nullptr;
  Launch* const launch = *it;
  pending_.erase(it);
  return launch;
}

bool Pool::close(DeviceState& device) {
  constexpr int64_t patience_ms = 10'000;
  device.closed = true;
  for (int64_t waited_ms = 0; waited_ms < patience_ms; ++waited_ms) {
    drop_pending(device);
    {
      std::lock_guard lock(mutex_);
      if (device.resident == 0 && first_pending(device) == pending_.end()) return true;
    }
    wake_sleepers();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

bool Pool::tend_gate() {
  if (!gated_) return false;
  {
    std::lock_guard lock(mutex_);
    if (pending_.empty()) {
      gate_open_ = false;
      return false;
    }
    if (gate_open_) return false;
  }
  if (!all_submitted()) return true;  // asks the streams, which submit under a lock of theirs
  std::lock_guard lock(mutex_);
  gate_open_ = true;
  return false;
}

bool Pool::takeable(const Launch& launch) const {
  return launch.device->residency == 0 || launch.device->resident < launch.device->residency;
}

bool Pool::take(Ticket& ticket) {
  std::lock_guard lock(mutex_);
  if (!gate_open_) return false;
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    Launch& launch = **it;
    if (!takeable(launch)) continue;
    ticket = {&launch, launch.next_block++};
    ++launch.device->resident;
    if (launch.next_block == launch.shape.grid) pending_.erase(it);
    return true;
  }
  return false;
}

bool Pool::has_work() {
  std::lock_guard lock(mutex_);
  if (!gate_open_) return false;
  for (const Launch* launch : pending_) {
    if (takeable(*launch)) return true;
  }
  return false;
}

// A launch that ends submits the next one of its stream before its device can be seen without a block: close relies on
// it.
void Pool::block_ended(Launch& launch) {
  const std::shared_ptr<DeviceState> device = launch.device;  // the launch may go
  const bool last = launch.unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1;
  if (last) on_finished(launch);
  {
    std::lock_guard lock(mutex_);
    --device->resident;
  }
  if (last || device->residency != 0) wake_sleepers();
}

}  // namespace ucclep::executor
