// SPDX-License-Identifier: Apache-2.0
#include "device/host/sleep.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace ucclep::executor {

constinit std::atomic<uint32_t> sleepers{0};

namespace {

constinit std::atomic<uint32_t> wakes{0};

long futex(int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&wakes), operation, value, timeout, nullptr, 0);
}

}  // namespace

uint32_t announce_sleep() {
  const uint32_t announced = wakes.load();
  sleepers.store(1);
  return announced;
}

void sleep_for(uint32_t announced, int64_t ns) {
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  futex(FUTEX_WAIT_PRIVATE, announced, &timeout);
}

void wake_sleepers() {
  if (sleepers.exchange(0) == 0) return;
  wakes.fetch_add(1);
  futex(FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

}  // namespace ucclep::executor
