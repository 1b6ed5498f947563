// SPDX-License-Identifier: Apache-2.0
// Runs the litmus kernels between two GPUs, and between two host devices. The right forms must never see a wrong word;
// how often the broken ones do is printed, for what it says about the hardware.
#include <catch2/catch.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "device/gpu_driver/gpu_device.hpp"
#include "device/host/host_device.hpp"
#include "gpu/litmus.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

constexpr int64_t timeout_ms = 100'000;

struct Litmus {
  const char* kernel;
  bool right;
};
constexpr Litmus all[] = {{"litmus_bulk_store", true},    {"litmus_bulk_store_unwritten", false},
                          {"litmus_bulk_load", true},     {"litmus_bulk_store_unfenced_slot", false},
                          {"litmus_bulk_pull", true},     {"litmus_bulk_load_unfenced", false},
                          {"litmus_lines", true},         {"litmus_bulk_pull_unfenced", false},
                          {"litmus_packets", true},       {"litmus_lines_one_epoch", false},
                          {"litmus_packets_split", false}};

struct Seen {
  uint64_t violations = 0, timed_out = 0;
};

// Two devices, each with a window that both reach.
class Pair {
 public:
  Pair(std::unique_ptr<Device> first, std::unique_ptr<Device> second) : devices_{std::move(first), std::move(second)} {}

  Seen run(const char* kernel, const LaunchShape& shape, uint32_t rounds) {
    const size_t channels = shape.grid * (shape.block / devices_[0]->traits().wave);
    LitmusArgs args{};
    args.rounds = rounds;
    args.limit_ns = 20'000'000'000;
    std::unique_ptr<SharedMemory> windows[2];
    uint64_t* counts[2];
    for (size_t i = 0; i < 2; ++i) {
      windows[i] = devices_[i]->share(channels * litmus_channel_bytes);
      for (const auto& device : devices_) device->allow(*windows[i]);
      args.windows[i] = static_cast<unsigned char*>(windows[i]->data());
      counts[i] = static_cast<uint64_t*>(devices_[i]->alloc(3 * sizeof(uint64_t)));
    }
    for (uint32_t i = 0; i < 2; ++i) {
      args.rank = i;
      args.violations = counts[i];
      args.timed_out = counts[i] + 1;
      args.abort_word = reinterpret_cast<uint32_t*>(counts[i] + 2);
      devices_[i]->launch({kernel, false}, shape, &args, sizeof args, nullptr);
    }
    Seen seen;
    for (size_t i = 0; i < 2; ++i) {
      uint64_t found[2] = {};
      REQUIRE(devices_[i]->stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
      devices_[i]->memcpy_async(found, counts[i], sizeof found, nullptr);
      REQUIRE(devices_[i]->stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
      devices_[i]->free(counts[i]);
      seen.violations += found[0];
      seen.timed_out += found[1];
    }
    return seen;
  }

  LaunchShape shape(unsigned grid, unsigned warps) const {
    return {grid, warps * devices_[0]->traits().wave, size_t{warps} * litmus_stage_bytes};
  }

 private:
  std::unique_ptr<Device> devices_[2];
};

Pair host_pair(HostDeviceConfig config, unsigned wave) {
  config.wave = wave;
  return {open_host_device(0, config), open_host_device(1, config)};
}

void right_forms_hold(Pair pair) {
  for (const Litmus& litmus : all) {
    if (!litmus.right) continue;
    INFO(litmus.kernel);
    const Seen seen = pair.run(litmus.kernel, pair.shape(2, 2), std::min(iterations(reduced() ? 10 : 40), 1000u));
    CHECK(seen.violations == 0);
    CHECK(seen.timed_out == 0);
  }
}

TEST_CASE("litmus: rows arrive whole on the host device", "[litmus]") {
  for (const unsigned wave : {32u, 64u}) right_forms_hold(host_pair({}, wave));
}

TEST_CASE("litmus: rows arrive whole where bulk copies take their time", "[litmus]") {
  HostDeviceConfig config;
  config.deferred = true;
  config.seed = 7;
  for (const unsigned wave : {32u, 64u}) right_forms_hold(host_pair(config, wave));
}

// A race on purpose, and so not for sanitizers.
TEST_CASE("litmus: a row that is announced before it is written is caught", "[litmus][slow]") {
  HostDeviceConfig config;
  config.deferred = true;
  config.seed = 7;
  Pair pair = host_pair(config, 32);
  CHECK(pair.run("litmus_bulk_store_unwritten", pair.shape(2, 2), 200).violations > 0);
}

std::unique_ptr<Device> gpu_at(int index) {
  for (const gpu::DriverFacts* facts : {&gpu::cuda_facts, &gpu::hip_facts}) {
    try {
      const gpu::Driver& driver = gpu::Driver::get(*facts);
      if (index < driver.device_count()) return gpu::open_gpu_device(driver, index);
    } catch (const Error& error) {
      if (error.code() != ucclEpNotSupported) throw;
    }
  }
  return nullptr;
}

TEST_CASE("litmus: rows arrive whole between two GPUs", "[litmus][gpu]") {
  std::unique_ptr<Device> first = gpu_at(0), second = gpu_at(1);
  if (second == nullptr) return skip_case("fewer than two GPUs");
  Pair pair(std::move(first), std::move(second));
  const uint32_t rounds = iterations(1000);
  for (const unsigned warps : {1u, 8u}) {
    const LaunchShape shape = pair.shape(32, warps);
    for (const Litmus& litmus : all) {
      INFO(litmus.kernel << " with " << warps << " warps a block");
      const Seen seen = pair.run(litmus.kernel, shape, rounds);
      const std::string what = std::string(litmus.kernel) + (litmus.right ? "" : " (broken)");
      std::cout << "value: " << what << ", violations in " << uint64_t{rounds} * shape.grid * warps
                << " rounds = " << seen.violations << std::endl;
      if (litmus.right) CHECK(seen.violations == 0);
      CHECK(seen.timed_out == 0);
    }
  }
}

}  // namespace
}  // namespace ucclep::test
