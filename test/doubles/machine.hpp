// SPDX-License-Identifier: Apache-2.0
// For tests of GPU devices over the doubles.
#pragma once
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "device/gpu_driver/gpu_device.hpp"
#include "doubles/support.hpp"

namespace ucclep::test {

inline constexpr int64_t timeout_ms = 60'000;

// A driver with two of its devices, and the caller's context as it was before.
struct Machine {
  explicit Machine(const gpu::DriverFacts& facts) : facts(facts), dbl(facts), driver(facts, facts.library) {
    for (int i = 0; i < 2; ++i) devices.push_back(gpu::open_gpu_device(driver, i));
  }
  gpu::Context current() const {
    gpu::Context context = nullptr;
    REQUIRE(driver.api().context_get_current(&context) == gpu::success);
    return context;
  }
  Device& first() { return *devices[0]; }
  Device& second() { return *devices[1]; }

  const gpu::DriverFacts& facts;
  Double dbl;
  gpu::Driver driver;
  std::vector<std::unique_ptr<Device>> devices;
};

template <class T>
std::vector<T> download(Device& device, const void* from, size_t count) {
  std::vector<T> to(count);
  device.memcpy_async(to.data(), from, count * sizeof(T), nullptr);
  REQUIRE(device.stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
  return to;
}

inline void await_copies(CopyQueue& copies, uint64_t count) {
  const auto begin = std::chrono::steady_clock::now();
  while (copies.ended() < count) {
    REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(timeout_ms));
    std::this_thread::yield();
  }
}

}  // namespace ucclep::test
