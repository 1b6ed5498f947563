// SPDX-License-Identifier: Apache-2.0
// The GPU device over the doubles: what it asks of a driver, and what becomes of what the driver answers.
#include "device/gpu_driver/gpu_device.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/put_signal.hpp"
#include "device/simt_check.hpp"
#include "doubles/machine.hpp"

namespace ucclep {
namespace {

using gpu::Driver;
using gpu::DriverFacts;
using test::await_copies;
using test::both_drivers;
using test::download;
using test::is_refused;
using test::Machine;
using test::Setting;
using test::timeout_ms;

TEST_CASE("gpu device: what it says of itself", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    Machine machine(*facts);
    const DeviceTraits& traits = machine.second().traits();
    const bool cuda = facts->kind == UCCLEP_DEVICE_CUDA;
    CHECK(traits.name == std::string(facts->vendor) + " 1 (double)");
    CHECK(traits.kind == facts->kind);
    CHECK(traits.index == 1);
    CHECK(traits.wave == (cuda ? 32u : 64u));
    CHECK(traits.num_sms == 4);
    CHECK(traits.shared_bytes == (cuda ? 128u : 64u) * 1024);
    CHECK(traits.line_bytes == 16);  // the code for doubles has lines of one lane
    CHECK(traits.line_payload == 8);
    CHECK(traits.place != 0);
    CHECK(traits.place != machine.first().traits().place);
  }
}

TEST_CASE("gpu device: the caller's current device is the one that is opened", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    test::Double dbl(*facts);
    const int before = dbl.live_objects();
    const Driver driver(*facts, facts->library);
    const gpu::DriverApi& api = driver.api();
    CHECK(gpu::open_gpu_device(driver, UCCLEP_DEVICE_INDEX_CURRENT)->traits().index == 0);  // none is current
    gpu::Context context = nullptr;
    REQUIRE(api.primary_context_retain(&context, 2) == gpu::success);
    REQUIRE(api.context_set_current(context) == gpu::success);
    CHECK(gpu::open_gpu_device(driver, UCCLEP_DEVICE_INDEX_CURRENT)->traits().index == 2);
    REQUIRE(api.context_set_current(nullptr) == gpu::success);
    REQUIRE(api.primary_context_release(2) == gpu::success);
    CHECK(dbl.live_objects() == before);
  }
}

TEST_CASE("gpu device: new memory of every kind is zero", "[gpu_device]") {
  constexpr size_t bytes = (3 << 20) + 5;
  const auto is_zero = [](const std::vector<char>& data) {
    return std::all_of(data.begin(), data.end(), [](char c) { return c == 0; });
  };
  for (const DriverFacts* facts : both_drivers) {
    Machine machine(*facts);
    void* data = machine.first().alloc(bytes);
    void* host = machine.first().alloc_host(bytes);
    const auto window = machine.first().share(bytes), pinned = machine.first().share_pinned(bytes);
    for (const void* memory : {data, host, window->data(), pinned->data()})
      CHECK(is_zero(download<char>(machine.first(), memory, bytes)));
    CHECK(window->bytes() == bytes);
    CHECK(pinned->bytes() == bytes);
    machine.first().free(data);
    machine.first().free_host(host);
    machine.first().free(machine.first().alloc(0));  // as any other memory
  }
}

TEST_CASE("gpu device: streams keep order, events order streams and measure", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    Machine machine(*facts);
    Device& device = machine.first();
    std::vector<uint64_t> numbers(1 << 16);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i * i;
    const size_t bytes = numbers.size() * sizeof(uint64_t);
    void* first = device.alloc(bytes);
    void* second = device.alloc(bytes);
    const ucclEpStream_t one = device.stream_create(), other = device.stream_create();
    const ucclEpEvent_t begin = device.event_create(), end = device.event_create();
    device.event_record(begin, one);
    device.memcpy_async(first, numbers.data(), bytes, one);
    device.event_record(end, one);
    device.stream_wait_event(other, end);
    device.memcpy_async(second, first, bytes, other);
    CHECK(device.stream_synchronize(other, timeout_ms) == ucclEpSuccess);
    CHECK(device.event_synchronize(end, timeout_ms) == ucclEpSuccess);
    CHECK(device.event_elapsed_ms(begin, end) >= 0);
    CHECK(download<uint64_t>(device, second, numbers.size()) == numbers);
    const ucclEpEvent_t marker = device.marker_create();
    device.event_record(marker, one);
    CHECK(device.event_synchronize(marker, timeout_ms) == ucclEpSuccess);
    CHECK_THROWS_AS(device.event_elapsed_ms(begin, marker), Error);
    device.event_destroy(marker);
    CHECK(!device.is_capturing(one));
    for (ucclEpEvent_t event : {begin, end}) device.event_destroy(event);
    for (ucclEpStream_t stream : {one, other}) device.stream_destroy(stream);
    for (void* data : {first, second}) device.free(data);
  }
}

TEST_CASE("gpu device: streams of services have a priority of their own", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Machine machine(*facts);
    Device& device = machine.first();
    const int before = machine.dbl.service_streams();
    const ucclEpStream_t plain = device.stream_create();
    CHECK(machine.dbl.service_streams() == before);
    const ucclEpStream_t service = device.service_stream_create();
    CHECK(machine.dbl.service_streams() == before + 1);
    for (const ucclEpStream_t stream : {plain, service}) device.stream_destroy(stream);
  }
}

TEST_CASE("gpu device: a capture knows its stream, and survives what no graph contains", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Machine machine(*facts);
    Device& device = machine.first();
    const test::GraphApi graphs = machine.dbl.graphs(*facts);
    const ucclEpStream_t one = device.stream_create(), other = device.stream_create();
    const ucclEpEvent_t event = device.event_create();
    auto* data = static_cast<uint64_t*>(device.alloc(16));
    device.event_record(event, other);
    gpu::Context context = nullptr;
    REQUIRE(machine.driver.api().primary_context_retain(&context, 0) == gpu::success);
    const gpu::Current current(machine.driver, context);
    REQUIRE(graphs.begin_capture(one, test::capture_global) == gpu::success);
    CHECK(device.is_capturing(one));
    CHECK(!device.is_capturing(other));
    device.memcpy_async(data + 1, data, 8, one);
    device.free(device.alloc(64));
    device.free_host(device.alloc_host(64));
    CHECK(device.event_synchronize(event, timeout_ms) == ucclEpSuccess);
    CHECK(device.stream_synchronize(other, timeout_ms) == ucclEpSuccess);
    is_refused(ucclEpInvalidUsage, {"waiting for a stream", "capturing"},
               [&] { device.stream_synchronize(one, timeout_ms); });
    void *graph = nullptr, *executable = nullptr;
    REQUIRE(graphs.end_capture(one, &graph) == gpu::success);
    REQUIRE(graphs.instantiate(&executable, graph, 0) == gpu::success);
    for (const uint64_t value : {5, 6}) {
      device.memcpy_async(data, &value, 8, one);
      REQUIRE(graphs.launch(executable, one) == gpu::success);
      CHECK(device.stream_synchronize(one, timeout_ms) == ucclEpSuccess);
      CHECK(download<uint64_t>(device, data, 2) == std::vector<uint64_t>{value, value});
    }
    CHECK(graphs.destroy_executable(executable) == gpu::success);
    CHECK(graphs.destroy(graph) == gpu::success);
    device.event_destroy(event);
    for (ucclEpStream_t stream : {one, other}) device.stream_destroy(stream);
    device.free(data);
    CHECK(machine.driver.api().primary_context_release(0) == gpu::success);
  }
}

TEST_CASE("gpu device: kernels get their arguments", "[gpu_device]") {
  constexpr unsigned grid = 4, threads = 256, row_bytes = 512;
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Machine machine(*facts);
    Device& device = machine.first();
    const unsigned warps = threads / device.traits().wave;
    const size_t rows = size_t{grid} * warps * row_bytes;
    std::vector<unsigned char> pattern(rows);
    for (size_t i = 0; i < rows; ++i)
      pattern[i] = static_cast<unsigned char>((7 * (i / row_bytes) + i % row_bytes) % 251);
    auto* words = static_cast<uint32_t*>(device.alloc(4096));
    auto* source = static_cast<unsigned char*>(device.alloc(rows));
    device.memcpy_async(source, pattern.data(), rows, nullptr);
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
    args.limit_ns = 100'000'000'000;
    args.abort_word = words + 300;
    const size_t shared = simt_check_shared_bytes(warps, row_bytes);
    device.launch({"simt_check"}, {grid, threads, shared}, &args, sizeof args, nullptr);
    const SimtCheckArgs launched = args;
    std::memset(&args, 0xff, sizeof args);  // they were copied
    const std::vector<uint32_t> seen = download<uint32_t>(device, words, 101);
    CHECK(seen[100] == grid * threads);
    CHECK(std::count(seen.begin(), seen.begin() + static_cast<int>(SimtCheck::count), 0u) ==
          static_cast<int>(SimtCheck::count));
    const auto launch = [&](const char* kernel, unsigned blocks) {
      device.launch({kernel}, {blocks, threads, shared}, &launched, sizeof launched, nullptr);
    };
    is_refused(ucclEpUnhandledDeviceError, {"ucclep_no_such_kernel failed: named symbol not found"},
               [&] { launch("no_such_kernel", 1); });
    is_refused(ucclEpUnhandledDeviceError, {"simt_check failed: too many blocks in cooperative launch"},
               [&] { launch("simt_check", grid + 1); });
    for (void* data : {static_cast<void*>(words), static_cast<void*>(source), static_cast<void*>(launched.words),
                       launched.packets, static_cast<void*>(launched.copies)}) {
      device.free(data);
    }
  }
}

// put_signal between the two devices of a machine.
struct Exchange {
  static constexpr unsigned words = 64, threads = 64;
  explicit Exchange(Machine& machine, bool pinned = false) : machine(machine) {
    for (unsigned r = 0; r < 2; ++r) {
      const size_t bytes = put_signal_window_bytes(2, words);
      windows.push_back(pinned ? machine.devices[r]->share_pinned(bytes) : machine.devices[r]->share(bytes));
      counts.push_back(static_cast<uint64_t*>(machine.devices[r]->alloc(64)));
    }
  }
  ~Exchange() {
    for (unsigned r = 0; r < 2; ++r) machine.devices[r]->free(counts[r]);
  }
  uint32_t* abort_word(unsigned rank) { return reinterpret_cast<uint32_t*>(counts[rank] + 2); }
  // `peer`: where the rank sees the other's window.
  void launch(unsigned rank, void* peer) {
    PutSignalArgs args{};
    args.ranks = 2;
    args.rank = rank;
    args.words = words;
    args.epoch = 1;
    args.windows[rank] = static_cast<unsigned char*>(windows[rank]->data());
    args.windows[1 - rank] = static_cast<unsigned char*>(peer);
    args.wrong = counts[rank];
    args.timed_out = counts[rank] + 1;
    args.limit_ns = 100'000'000'000;
    args.abort_word = abort_word(rank);
    machine.devices[rank]->launch({"put_signal", false}, {1, threads, 0}, &args, sizeof args, nullptr);
  }
  std::vector<uint64_t> wrong_and_timed_out(unsigned rank) {
    return download<uint64_t>(*machine.devices[rank], counts[rank], 2);
  }

  Machine& machine;
  std::vector<std::unique_ptr<SharedMemory>> windows;
  std::vector<uint64_t*> counts;
};

// Where the driver has it, and only for kernels whose blocks do not meet; nothing else about a launch differs.
TEST_CASE("gpu device: launches begin early where that is asked for", "[gpu_device]") {
  const auto exchanges = [](Machine& machine) {
    Exchange exchange(machine);
    for (unsigned r = 0; r < 2; ++r) machine.devices[r]->allow(*exchange.windows[1 - r]);
    for (unsigned r = 0; r < 2; ++r) exchange.launch(r, exchange.windows[1 - r]->data());
    for (unsigned r = 0; r < 2; ++r) CHECK(exchange.wrong_and_timed_out(r) == std::vector<uint64_t>{0, 0});
  };
  const auto begins_early = [&](const DriverFacts& facts) {
    INFO(facts.vendor);
    Machine machine(facts);
    const Setting refused("UCCLEP_DOUBLE_FAIL", "launch_with:719");
    try {
      exchanges(machine);
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Catch::Matchers::Contains("put_signal failed: unspecified launch failure (code 719)"));
      return true;
    }
    return false;
  };
  const DriverFacts &cuda = *both_drivers[0], &hip = *both_drivers[1];
  REQUIRE(cuda.kind == UCCLEP_DEVICE_CUDA);
  CHECK(!begins_early(cuda));
  const Setting early("UCCLEP_EARLY_START", "1");
  CHECK(begins_early(cuda));
  CHECK(!begins_early(hip));
  {
    const Setting before_graphs_had_it("UCCLEP_DOUBLE_VERSION", "12020");
    CHECK(!begins_early(cuda));
  }
  {
    Machine machine(cuda);
    exchanges(machine);
  }
  const Setting no_flag("UCCLEP_EARLY_START", "yes");
  for (const DriverFacts* facts : both_drivers) {
    is_refused(ucclEpInvalidArgument, {"UCCLEP_EARLY_START", "yes"}, [&] { Machine machine(*facts); });
  }
}

TEST_CASE("gpu device: a window is shared by reference and by descriptor", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Machine machine(*facts);
    Exchange exchange(machine);
    machine.first().allow(*exchange.windows[1]);
    machine.first().allow(*exchange.windows[1]);  // ranks that share a device each ask, and the driver hears of it once
    const auto mapped = machine.second().map(exchange.windows[0]->ticket(), Fd(dup(exchange.windows[0]->fd())));
    CHECK(mapped->data() != exchange.windows[0]->data());
    CHECK(mapped->bytes() == exchange.windows[0]->bytes());
    exchange.launch(0, exchange.windows[1]->data());
    exchange.launch(1, mapped->data());
    for (unsigned r = 0; r < 2; ++r) CHECK(exchange.wrong_and_timed_out(r) == std::vector<uint64_t>{0, 0});
    is_refused(ucclEpUnhandledDeviceError, {"importing a peer's window memory"},
               [&] { machine.second().map(exchange.windows[0]->ticket(), Fd()); });
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    close(pipes[1]);
    is_refused(ucclEpUnhandledDeviceError, {"mapping window memory"},
               [&] { machine.second().map(exchange.windows[0]->ticket(), Fd(pipes[0])); });
  }
}

TEST_CASE("gpu device: a window of pinned memory is shared as others are, and threads of the host reach it",
          "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Machine machine(*facts);
    Exchange exchange(machine, true);
    SharedMemory& first = *exchange.windows[0];
    machine.first().allow(*exchange.windows[1]);
    const auto mapped = machine.second().map(first.ticket(), Fd(dup(first.fd())));
    CHECK(mapped->data() != first.data());
    CHECK(mapped->bytes() == first.bytes());
    exchange.launch(0, exchange.windows[1]->data());
    exchange.launch(1, mapped->data());
    for (unsigned r = 0; r < 2; ++r) CHECK(exchange.wrong_and_timed_out(r) == std::vector<uint64_t>{0, 0});
    const auto seen = download<char>(machine.first(), first.data(), first.bytes());
    for (const SharedMemory* memory : {&first, mapped.get()})
      CHECK(std::equal(seen.begin(), seen.end(), static_cast<const char*>(memory->host_data())));
    CHECK(machine.first().share(100)->host_data() == nullptr);
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    close(pipes[1]);
    is_refused(ucclEpInvalidArgument, {"not a memfd that is sealed"},
               [&] { machine.second().map(first.ticket(), Fd(pipes[0])); });
    const Setting failure("UCCLEP_DOUBLE_FAIL", "host_register:2");
    is_refused(ucclEpOutOfMemory, {"pinning 4096 bytes of window memory failed: out of memory"},
               [&] { machine.first().share_pinned(100); });
  }
}

// A kernel runs on the first device that waits for a signal until it is told to stop.
struct Waiting {
  explicit Waiting(const DriverFacts& facts) : machine(facts), exchange(machine), device(machine.first()) {
    device.allow(*exchange.windows[1]);
    exchange.launch(0, exchange.windows[1]->data());
  }
  void stop() {
    device.poke(exchange.abort_word(0), 1);
    CHECK(device.stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
    CHECK(exchange.wrong_and_timed_out(0)[1] == 1);
  }
  Machine machine;
  Exchange exchange;
  Device& device;
};

TEST_CASE("gpu device: a wait is bounded, and a word can be written while a kernel runs", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Waiting waiting(*facts);
    Device& device = waiting.device;
    const ucclEpEvent_t event = device.event_create();
    device.event_record(event, nullptr);
    CHECK(device.stream_synchronize(nullptr, 20) == ucclEpTimeout);
    CHECK(device.event_synchronize(event, 0) == ucclEpTimeout);
    waiting.stop();
    CHECK(device.event_synchronize(event, timeout_ms) == ucclEpSuccess);
    device.event_destroy(event);
  }
}

TEST_CASE("gpu device: a queue copies while a kernel runs, and says how many copies have ended", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Waiting waiting(*facts);
    Device& device = waiting.device;
    auto* const host = static_cast<int*>(device.alloc_host(3 * sizeof(int)));
    auto* const data = static_cast<int*>(device.alloc(sizeof(int)));
    for (int i = 0; i < 2; ++i) {
      const std::unique_ptr<CopyQueue> copies = device.copy_queue();
      CHECK(copies->ended() == 0);
      host[0] = 5 + i;
      copies->copy(data, host, sizeof(int));
      copies->copy(host + 1, data, sizeof(int));
      await_copies(*copies, 2);
      CHECK(host[1] == 5 + i);
      copies->copy(host + 2, data, sizeof(int));  // ends before the queue does
    }
    CHECK(host[2] == 6);
    waiting.stop();
    device.free(data);
    device.free_host(host);
  }
}

TEST_CASE("gpu device: the communicator hears of what a driver says of a kernel later", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    Machine machine(*facts);
    std::vector<std::string> heard;
    machine.first().on_fault([&](const Error& fault) { heard.emplace_back(fault.what()); });
    {
      const Setting failure("UCCLEP_DOUBLE_FAIL", "stream_query:719");
      is_refused(ucclEpUnhandledDeviceError, {"waiting for a stream failed: unspecified launch failure (code 719)"},
                 [&] { machine.first().stream_synchronize(nullptr, timeout_ms); });
    }
    REQUIRE(heard.size() == 1);
    CHECK_THAT(heard[0], Catch::Matchers::Contains("unspecified launch failure"));
    CHECK(machine.first().stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
  }
}

}  // namespace
}  // namespace ucclep
