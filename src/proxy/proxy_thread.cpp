// SPDX-License-Identifier: Apache-2.0
#include "proxy/proxy_thread.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/log.hpp"

namespace ucclep::proxy {
namespace {

constexpr uint32_t rounds_between_looks = 1024;  // at the clock
constexpr std::chrono::milliseconds between_watches{20};

void pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  if (cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(cpu), &only);
  const int code = pthread_setaffinity_np(pthread_self(), sizeof only, &only);
  if (code != 0) log::info("proxy", "cannot pin the thread to CPU {}: {}", cpu, std::strerror(code));
}

}  // namespace

ProxyThread::ProxyThread(uint32_t rank, uint32_t number, int cpu)
    : thread_(start_service_thread(fmt::format("ucclep-proxy-{}", number), static_cast<int>(rank),
                                   [this, cpu] { run(cpu); })) {}

ProxyThread::~ProxyThread() {
  ending_.store(true, std::memory_order_release);
  thread_.join();
}

void ProxyThread::adopt(std::shared_ptr<GroupShare> share) {
  const std::lock_guard lock(mutex_);
  wanted_.push_back(std::move(share));
  changed_.store(true, std::memory_order_release);
}

bool ProxyThread::let_go(const GroupShare& share, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const uint64_t before = renewals_;
  std::erase_if(wanted_, [&](const auto& one) { return one.get() == &share; });
  changed_.store(true, std::memory_order_release);
  if (renewed_.wait_until(lock, deadline.at(), [&] { return renewals_ > before; })) return true;
  log::warn("proxy", "a proxy thread did not end its work for a group within {} ms", deadline.total_ms());
  return false;
}

void ProxyThread::renew_shares() {
  const std::lock_guard lock(mutex_);
  changed_.store(false, std::memory_order_relaxed);
  shares_ = wanted_;
  ++renewals_;
  renewed_.notify_all();
}

void ProxyThread::run(int cpu) {
  pin(cpu);
  GroupShare::Clock::time_point watched = GroupShare::Clock::now();
  for (uint32_t round = 1; !ending_.load(std::memory_order_acquire); ++round) {
    if (changed_.load(std::memory_order_acquire)) renew_shares();
    bool moved = false;
    for (const auto& share : shares_) moved |= share->step();
    rounds_.add(1);
    if (moved) {
      backoff_.reset();
    } else {
      backoff_.wait(std::any_of(shares_.begin(), shares_.end(), [](const auto& share) { return share->under_way(); }));
    }
    if (moved && round % rounds_between_looks != 0) continue;
    const auto now = GroupShare::Clock::now();
    if (now - watched < between_watches) continue;
    watched = now;
    for (const auto& share : shares_) share->watch(now);
  }
}

ThreadStatistics ProxyThread::statistics() const {
  ThreadStatistics sum{rounds_.get(), backoff_.yields(), backoff_.sleeps(), 0};
  const auto thread = thread_.handle();
  clockid_t clock;
  timespec used{};
  if (thread && pthread_getcpuclockid(*thread, &clock) == 0 && clock_gettime(clock, &used) == 0) {
    sum.cpu_ns = static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
  }
  return sum;
}

}  // namespace ucclep::proxy
