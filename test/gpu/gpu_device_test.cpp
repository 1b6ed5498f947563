// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine as devices. Skipped where there is none.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <thread>
#include <vector>

#include "device/gpu_driver/gpu_device.hpp"
#include "device/gpu_driver/gpu_traits.hpp"
#include "device/kernels/trace_clock.hpp"
#include "device/put_signal.hpp"
#include "device/simt_check.hpp"
#include "support/test_env.hpp"

namespace ucclep {
namespace {

constexpr int64_t timeout_ms = 60'000;

// One device per GPU; none, and the case skipped, without a driver.
std::vector<std::unique_ptr<Device>> open_all() {
  std::vector<std::unique_ptr<Device>> devices;
  for (const gpu::DriverFacts* facts : {&gpu::cuda_facts, &gpu::hip_facts}) {
    try {
      const gpu::Driver& driver = gpu::Driver::get(*facts);
      for (int i = 0; i < driver.device_count(); ++i) devices.push_back(gpu::open_gpu_device(driver, i));
      break;
    } catch (const Error& error) {
      if (error.code() != ucclEpNotSupported) throw;
    }
  }
  if (devices.empty()) test::skip_case("no GPU");
  return devices;
}

template <class T>
void upload(Device& device, T* to, const std::vector<T>& from) {
  device.memcpy_async(to, from.data(), from.size() * sizeof(T), nullptr);
  REQUIRE(device.stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
}

template <class T>
std::vector<T> download(Device& device, const T* from, size_t count) {
  std::vector<T> to(count);
  device.memcpy_async(to.data(), from, count * sizeof(T), nullptr);
  REQUIRE(device.stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
  return to;
}

void try_all_verbs(Device& device, unsigned threads) {
  constexpr unsigned grid = 16, row_bytes = 2048;
  constexpr auto checks = static_cast<unsigned>(SimtCheck::count);
  const unsigned warps = threads / device.traits().wave;
  const size_t rows = size_t{grid} * warps * row_bytes;
  auto* words = static_cast<uint32_t*>(device.alloc(4096));
  auto* source = static_cast<unsigned char*>(device.alloc(rows));
  std::vector<unsigned char> pattern(rows);
  for (size_t i = 0; i < rows; ++i)
    pattern[i] = static_cast<unsigned char>((7 * (i / row_bytes) + i % row_bytes) % 251);
  upload(device, source, pattern);
  SimtCheckArgs args{};
  args.wrong = words;
  args.done = words + 100;
  args.words = static_cast<uint64_t*>(device.alloc((4 + grid) * sizeof(uint64_t)));
  args.packets = device.alloc(size_t{grid} * 16);
  args.source = source;
  args.copies = static_cast<unsigned char*>(device.alloc(2 * rows));
  args.grid_barrier = words + 200;
  args.row_bytes = row_bytes;
  args.epoch = 1;
  args.limit_ns = 10'000'000'000;
  args.abort_word = words + 300;
  device.launch({"simt_check"}, {grid, threads, simt_check_shared_bytes(warps, row_bytes)}, &args, sizeof args,
                nullptr);
  REQUIRE(device.stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
  const std::vector<uint32_t> seen = download(device, words, 101);
  for (unsigned i = 0; i < checks; ++i) {
    INFO("check " << i << " with " << threads << " threads");
    CHECK(seen[i] == 0);
  }
  CHECK(seen[100] == grid * threads);
  for (void* data : {static_cast<void*>(words), static_cast<void*>(source), static_cast<void*>(args.words),
                     args.packets, static_cast<void*>(args.copies)}) {
    device.free(data);
  }
}

// Not a check: tools/test-gpu.sh asks which GPUs the library finds, or why none.
TEST_CASE("gpu: names", "[.]") {
  for (const gpu::DriverFacts* facts : {&gpu::cuda_facts, &gpu::hip_facts}) {
    try {
      const gpu::Driver& driver = gpu::Driver::get(*facts);
      for (int i = 0; i < driver.device_count(); ++i) {
        std::cout << (facts == &gpu::cuda_facts ? "gpu cuda: " : "gpu hip: ") << gpu::gpu_device_traits(driver, i).name
                  << std::endl;
      }
      if (driver.device_count() > 0) return;
    } catch (const Error& error) {
      std::cout << "no gpu: " << error.what() << std::endl;
    }
  }
}

TEST_CASE("gpu: every verb", "[gpu]") {
  for (const auto& device : open_all()) {
    INFO(device->traits().name);
    try_all_verbs(*device, 128);
    try_all_verbs(*device, 512);
  }
}

TEST_CASE("gpu: new memory is zero, events measure, a bad launch is refused", "[gpu]") {
  for (const auto& device : open_all()) {
    INFO(device->traits().name);
    auto* data = static_cast<uint64_t*>(device->alloc(1 << 20));
    CHECK(download(*device, data, 1000) == std::vector<uint64_t>(1000));
    const ucclEpStream_t stream = device->stream_create();
    const ucclEpEvent_t begin = device->event_create(), end = device->event_create();
    device->event_record(begin, stream);
    device->memcpy_async(data, data + (1 << 16), 1 << 19, stream);
    device->event_record(end, stream);
    CHECK(device->event_synchronize(end, timeout_ms) == ucclEpSuccess);
    CHECK(device->event_elapsed_ms(begin, end) >= 0);
    CHECK(!device->is_capturing(stream));
    SimtCheckArgs args{};
    CHECK_THROWS_AS(device->launch({"simt_check"}, {1, 4096, 0}, &args, sizeof args, stream), Error);
    CHECK_THROWS_AS(device->launch({"no_such_kernel"}, {1, 128, 0}, &args, sizeof args, stream), Error);
    device->event_destroy(begin);
    device->event_destroy(end);
    device->stream_destroy(stream);
    device->free(data);
    void* host = device->alloc_host(4096);
    CHECK(static_cast<char*>(host)[4095] == 0);
    device->free_host(host);
  }
}

TEST_CASE("gpu: a window is reached through its descriptor", "[gpu]") {
  for (const auto& device : open_all()) {
    INFO(device->traits().name);
    constexpr size_t bytes = 5 << 20;
    const auto own = device->share(bytes);
    auto* words = static_cast<uint64_t*>(own->data());
    upload(*device, words + 100, std::vector<uint64_t>{1, 2, 3});
    const auto mapped = device->map(own->ticket(), Fd(dup(own->fd())));
    CHECK(mapped->data() != own->data());
    CHECK(download(*device, static_cast<uint64_t*>(mapped->data()) + 100, 3) == std::vector<uint64_t>{1, 2, 3});
    CHECK_THROWS_AS(device->map(own->ticket(), Fd()), Error);
  }
}

TEST_CASE("gpu: a window of pinned memory is reached by the host, and through its descriptor", "[gpu]") {
  for (const auto& device : open_all()) {
    INFO(device->traits().name);
    constexpr size_t bytes = 5 << 20;
    const auto own = device->share_pinned(bytes);
    upload(*device, static_cast<uint64_t*>(own->data()) + 100, std::vector<uint64_t>{1, 2, 3});
    const auto mapped = device->map(own->ticket(), Fd(dup(own->fd())));
    static_cast<uint64_t*>(mapped->host_data())[103] = 4;
    const std::vector<uint64_t> all{1, 2, 3, 4};
    CHECK(download(*device, static_cast<uint64_t*>(mapped->data()) + 100, 4) == all);
    CHECK(download(*device, static_cast<uint64_t*>(own->data()) + 100, 4) == all);
    CHECK(std::equal(all.begin(), all.end(), static_cast<uint64_t*>(own->host_data()) + 100));
    CHECK(device->share(bytes)->host_data() == nullptr);
  }
}

// What a NIC does with it no machine without one shows.
TEST_CASE("gpu: memory is handed to NICs, and flushed, where the driver says that it can be", "[gpu]") {
  for (const auto& device : open_all()) {
    NicAccess& nics = *device->nic_access();
    const auto window = device->share(1 << 20);
    if (nics.facts().dma_buf) {
      auto* const begin = static_cast<char*>(window->data());
      CHECK(nics.dma_buf(begin, window->bytes()).offset == 0);
      const DmaBuf part = nics.dma_buf(begin + 5000, 5000);
      CHECK(part.fd.get() >= 0);
      CHECK(part.offset == 5000 % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
    }
    for (const NicWritesReach readers : {NicWritesReach::owner, NicWritesReach::all_devices}) {
      if (nics.facts().writes.flushes) nics.flush(readers);
    }
  }
}

// A kernel of a rank whose peer does not come, and one behind it that has not run before, as a repair behind its
// operation.
TEST_CASE("gpu: a word is written while a kernel runs and another waits behind it", "[gpu]") {
  constexpr unsigned ranks = 2, words = 1024;
  for (const auto& device : open_all()) {
    INFO(device->traits().name);
    const auto window = device->share(put_signal_window_bytes(ranks, words));
    device->allow(*window);
    auto* counts = static_cast<uint64_t*>(device->alloc(64));
    auto* now_ns = static_cast<uint64_t*>(device->alloc_host(sizeof(uint64_t)));
    PutSignalArgs args{};
    args.ranks = ranks;
    args.rank = 1;  // its own row is there, and rank 0's never
    args.words = words;
    args.epoch = 1;
    args.limit_ns = 30'000'000'000;
    for (unsigned r = 0; r < ranks; ++r) args.windows[r] = static_cast<unsigned char*>(window->data());
    args.wrong = counts;
    args.timed_out = counts + 1;
    auto* const abort_word = reinterpret_cast<uint32_t*>(counts + 2);
    args.abort_word = abort_word;
    const TraceClockArgs behind{now_ns};
    const ucclEpStream_t stream = device->stream_create();
    device->launch({.name = "put_signal", .meets = false}, {1, 512, 0}, &args, sizeof args, stream);
    device->launch({.name = "trace_clock", .meets = false}, {1, device->traits().wave, 0}, &behind, sizeof behind,
                   stream);
    CHECK(device->stream_synchronize(stream, 100) == ucclEpTimeout);
    std::thread other([&] { device->poke(abort_word, 1); });
    CHECK(device->stream_synchronize(stream, 10'000) == ucclEpSuccess);
    other.join();
    REQUIRE(device->stream_synchronize(stream, timeout_ms) == ucclEpSuccess);
    CHECK(*now_ns != 0);
    device->stream_destroy(stream);
    device->free_host(now_ns);
    device->free(counts);
  }
}

TEST_CASE("gpu: data arrives with its signal at every other GPU", "[gpu]") {
  const auto devices = open_all();
  const auto ranks = static_cast<unsigned>(devices.size());
  if (ranks == 0) return;
  constexpr unsigned words = 1024;
  std::vector<std::unique_ptr<SharedMemory>> windows;
  PutSignalArgs args{};
  args.ranks = ranks;
  args.words = words;
  args.limit_ns = 10'000'000'000;
  for (const auto& device : devices) windows.push_back(device->share(put_signal_window_bytes(ranks, words)));
  for (unsigned r = 0; r < ranks; ++r) {
    args.windows[r] = static_cast<unsigned char*>(windows[r]->data());
    for (const auto& device : devices) {
      device->allow(*windows[r]);
      device->allow(*windows[r]);  // ranks that share a device each ask
    }
  }
  std::vector<uint64_t*> counts;
  for (const auto& device : devices) counts.push_back(static_cast<uint64_t*>(device->alloc(64)));
  for (args.epoch = 1; args.epoch <= 20; ++args.epoch) {
    for (unsigned r = 0; r < ranks; ++r) {
      args.rank = r;
      args.wrong = counts[r];
      args.timed_out = counts[r] + 1;
      args.abort_word = reinterpret_cast<uint32_t*>(counts[r] + 2);
      devices[r]->launch({"put_signal"}, {2, 128, 0}, &args, sizeof args, nullptr);
    }
    for (const auto& device : devices) REQUIRE(device->stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
  }
  for (unsigned r = 0; r < ranks; ++r) {
    CHECK(download(*devices[r], counts[r], 2) == std::vector<uint64_t>{0, 0});
    devices[r]->free(counts[r]);
  }
}

}  // namespace
}  // namespace ucclep
