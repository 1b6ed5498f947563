// SPDX-License-Identifier: Apache-2.0
#include "device/host/worker.hpp"

#include <sched.h>

#include "base/attempt.hpp"
#include "device/host/clock.hpp"
#include "device/host/sleep.hpp"

namespace ucclep::executor {

Worker::Worker(BlockSource& pool, unsigned index, uint64_t seed)
    : pool_(pool), seeded_(seed != 0), random_((seed + index + 1) * 0x9e3779b97f4a7c15ull | 1) {}

Worker::~Worker() = default;

void Worker::run() {
  describe_thread(scheduler);
  while (!pool_.stopping()) {
    // Resident blocks may be busy for ever with looking whether a block has spoken that is still to be admitted: a poll
    // by a whole warp is a rendezvous, and counts as progress.
    const bool progress = pass();
    if (admit() || progress) {
      idle_since_ns_ = 0;
    } else {
      idle();
    }
  }
  while (!resident_.empty()) retire(resident_.size() - 1);
}

bool Worker::pass() {
  bool progress = false;
  for (size_t i = 0; i < resident_.size();) {
    if (seeded_) std::swap(resident_[i], resident_[i + random() % (resident_.size() - i)]);
    Block& block = *resident_[i];
    progress |= visit(block);
    if (block.live == 0 || block.launch->dropped()) {
      retire(i);
    } else {
      ++i;
    }
  }
  return progress;
}

// A turn of a block: until all its lanes spin, or it ends.
bool Worker::visit(Block& block) {
  Launch& launch = *block.launch;
  if (launch.dropped()) return true;
  const uint64_t events = block.events;
  run_lanes(block);
  if (complaint.trouble != Trouble::none) {
    fault(block, std::exchange(complaint, {}));
    return true;
  }
  const bool progress = block.events != events;
  if (launch.device->watchdog_ns != 0) {
    if (progress) {
      launch.progress_ns.store(now_ns(), std::memory_order_relaxed);
    } else {
      watch(block);
    }
  }
  return progress;
}

void Worker::watch(Block& block) {
  Launch& launch = *block.launch;
  if (now_ns() - launch.progress_ns.load(std::memory_order_relaxed) < launch.device->watchdog_ns) return;
  const Complaint stuck = find_stuck(block);
  if (stuck.trouble != Trouble::none) fault(block, stuck);
}

void Worker::fault(Block& block, const Complaint& what) {
  // Described first: once the launch has failed other workers drop its blocks and take those that were not resident.
  const std::string message = describe(block, what);
  if (block.launch->failed.exchange(true)) return;  // another block was first
  block.launch->device->report({ucclEpInternalError, message});
}

void Worker::retire(size_t index) {
  std::unique_ptr<Block> block = std::move(resident_[index]);
  resident_[index] = std::move(resident_.back());
  resident_.pop_back();
  Launch& launch = *block->launch;
  end_block(*block);
  spare_.push_back(std::move(block));
  pool_.block_ended(launch);
}

bool Worker::admit() {
  BlockSource::Ticket ticket;
  if (!pool_.take(ticket)) return false;
  const auto failed = attempt([&] {
    if (spare_.empty()) spare_.push_back(std::make_unique<Block>());
    for (auto* list : {&resident_, &spare_}) list->reserve(resident_.size() + spare_.size());  // retire must not fail
    begin_block(*spare_.back(), *ticket.launch, ticket.block, *this);
    resident_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  });
  if (!failed) return true;
  if (!ticket.launch->failed.exchange(true)) ticket.launch->device->report(*failed);
  pool_.block_ended(*ticket.launch);
  return true;
}

void Worker::idle() {
  constexpr int64_t spin_ns = 50'000;  // then the core is for others
  constexpr int64_t nap_ns = 150'000;  // another process may have stored what a lane waits for; time may open the gate
  constexpr int64_t sleep_ns = 100'000'000;  // nothing to wait for: a launch wakes
  if (resident_.empty()) {
    const uint32_t announced = announce_sleep();
    const bool held_back = pool_.tend_gate();
    if (!pool_.has_work() && !pool_.stopping()) sleep_for(announced, held_back ? nap_ns : sleep_ns);
    return;
  }
  const int64_t now = now_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  if (now - idle_since_ns_ < spin_ns) {
    sched_yield();
    return;
  }
  sleep_for(announce_sleep(), nap_ns);
}

}  // namespace ucclep::executor
