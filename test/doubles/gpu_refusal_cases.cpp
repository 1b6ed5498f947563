// SPDX-License-Identifier: Apache-2.0
// Whatever a driver refuses: an error with its words, nothing left behind, and the caller's context as it was.
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/gpu_driver/gpu_device.hpp"
#include "device/put_signal.hpp"
#include "doubles/machine.hpp"

namespace ucclep {
namespace {

using gpu::DriverFacts;
using test::await_copies;
using test::both_drivers;
using test::is_refused;
using test::Machine;
using test::Setting;
using test::timeout_ms;

constexpr int launch_failed = 719;

struct Made {
  std::function<void()> give_back = [] {};
};
struct Operation {
  const char* name;
  std::function<Made()> run;
};

// Everything that a device can be asked for, on memory, streams and events that are there already.
struct Operations {
  explicit Operations(Machine& machine) : device(machine.first()) {
    data = device.alloc(4096);
    window = device.share(4096);
    foreign = machine.second().share(4096);
    pinned = machine.second().share_pinned(4096);
    stream = device.stream_create();
    event = device.event_create();
    device.event_record(event, stream);
    REQUIRE(device.stream_synchronize(stream, timeout_ms) == ucclEpSuccess);
  }
  ~Operations() {
    device.stream_synchronize(stream, timeout_ms);
    device.event_destroy(event);
    device.stream_destroy(stream);
    device.free(data);
  }
  std::vector<Operation> all() {
    return {
        {"alloc", [this] { return made(device.alloc(100), &Device::free); }},
        {"alloc_shareable", [this] { return made(device.alloc_shareable(100, true), &Device::free); }},
        {"alloc_host", [this] { return made(device.alloc_host(100), &Device::free_host); }},
        {"share", [this] { return held(device.share(100)); }},
        {"share_pinned", [this] { return held(device.share_pinned(100)); }},
        {"map", [this] { return held(device.map(window->ticket(), Fd(dup(window->fd())))); }},
        {"map of pinned memory", [this] { return held(device.map(pinned->ticket(), Fd(dup(pinned->fd())))); }},
        {"allow", [this] { return device.allow(*foreign), Made{}; }},
        {"stream_create", [this] { return made(device.stream_create(), &Device::stream_destroy); }},
        {"stream_synchronize", [this] { return device.stream_synchronize(stream, timeout_ms), Made{}; }},
        {"event_create", [this] { return made(device.event_create(), &Device::event_destroy); }},
        {"marker_create", [this] { return made(device.marker_create(), &Device::event_destroy); }},
        {"event_record", [this] { return device.event_record(event, stream), Made{}; }},
        {"stream_wait_event", [this] { return device.stream_wait_event(stream, event), Made{}; }},
        {"event_synchronize", [this] { return device.event_synchronize(event, timeout_ms), Made{}; }},
        {"event_elapsed_ms", [this] { return device.event_elapsed_ms(event, event), Made{}; }},
        {"is_capturing", [this] { return device.is_capturing(stream), Made{}; }},
        {"poke", [this] { return device.poke(static_cast<uint32_t*>(data), 1), Made{}; }},
        {"memcpy_async", [this] { return device.memcpy_async(data, data, 0, stream), Made{}; }},
        {"copy_queue", [this] { return queue(); }},
        {"launch", [this] { return launch(), Made{}; }},
    };
  }

  Device& device;
  void* data = nullptr;
  std::unique_ptr<SharedMemory> window, foreign, pinned;
  ucclEpStream_t stream = nullptr;
  ucclEpEvent_t event = nullptr;

 private:
  Made made(void* object, void (Device::*destroy)(void*)) {
    return {[this, object, destroy] { (device.*destroy)(object); }};
  }
  static Made held(std::unique_ptr<SharedMemory> memory) {
    return {[kept = std::shared_ptr<SharedMemory>(std::move(memory))]() mutable { kept.reset(); }};
  }
  Made queue() {
    const std::shared_ptr<CopyQueue> copies = device.copy_queue();
    copies->copy(data, data, 0);
    await_copies(*copies, 1);
    return {[kept = copies]() mutable { kept.reset(); }};
  }
  void launch() {
    PutSignalArgs args{};  // a rank without peers
    args.ranks = 1;
    args.windows[0] = static_cast<unsigned char*>(data);
    args.wrong = args.timed_out = static_cast<uint64_t*>(data) + 256;
    args.abort_word = static_cast<uint32_t*>(data) + 1000;
    device.launch({"put_signal"}, {1, 64, 0}, &args, sizeof args, stream);
  }
};

// Runs the operation with its first driver call refused, then with its second, until none was. Returns how many there
// are.
int refuse_each_call(Machine& machine, const Operation& operation) {
  INFO(machine.facts.vendor << ": " << operation.name);
  const gpu::Context callers = machine.current();
  for (int calls = 0; calls < 1000; ++calls) {
    const int live = machine.dbl.live_objects();
    Made made;
    bool threw = false;
    machine.dbl.fail_after(calls, launch_failed);
    try {
      made = operation.run();
    } catch (const Error& error) {
      threw = true;
      CHECK(error.code() == ucclEpUnhandledDeviceError);
      CHECK_THAT(error.what(), Catch::Matchers::Contains("unspecified launch failure (code 719)"));
    }
    const bool refused = machine.dbl.has_failed();
    machine.dbl.fail_after(-1, 0);
    INFO("driver call " << calls);
    CHECK(machine.current() == callers);
    if (threw) CHECK(machine.dbl.live_objects() == live);
    made.give_back();
    if (!refused) return calls;
  }
  FAIL("it never came to an end");
  return 0;
}

TEST_CASE("gpu device: whatever the driver refuses, nothing is left behind", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    test::Double dbl(*facts);
    const int before = dbl.live_objects();
    {
      Machine machine(*facts);
      Operations operations(machine);
      CHECK(machine.current() == nullptr);
      for (const Operation& operation : operations.all()) CHECK(refuse_each_call(machine, operation) >= 2);
      gpu::Context other = nullptr;
      REQUIRE(machine.driver.api().primary_context_retain(&other, 3) == gpu::success);
      REQUIRE(machine.driver.api().context_set_current(other) == gpu::success);
      for (const Operation& operation : operations.all()) refuse_each_call(machine, operation);
      REQUIRE(machine.driver.api().context_set_current(nullptr) == gpu::success);
      REQUIRE(machine.driver.api().primary_context_release(3) == gpu::success);
    }
    CHECK(dbl.live_objects() == before);
  }
}

TEST_CASE("gpu device: opening one that is refused somewhere leaves nothing behind", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    Machine machine(*facts);
    const Operation open{"open", [&] {
                           std::shared_ptr<Device> device = gpu::open_gpu_device(machine.driver, 2);
                           return Made{[device]() mutable { device.reset(); }};
                         }};
    CHECK(refuse_each_call(machine, open) > 100);  // it asks for every kernel
  }
}

TEST_CASE("gpu device: what cannot be given back is left where it is", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    for (const char* function : {"stream_destroy", "module_unload", "allocation_release", "unmap", "address_free"}) {
      INFO(function);
      Machine machine(*facts);
      const Setting failure("UCCLEP_DOUBLE_FAIL", std::string(function) + ":719");
      CHECK_NOTHROW(machine.first().share(100).reset());
      CHECK_NOTHROW(machine.devices.clear());
      CHECK(machine.current() == nullptr);
    }
  }
}

TEST_CASE("gpu device: a context that cannot be made current is an error", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    Machine machine(*facts);
    {
      const Setting failure("UCCLEP_DOUBLE_FAIL", "context_set_current:201");
      is_refused(ucclEpUnhandledDeviceError, {"setting the current context failed: invalid context"},
                 [&] { machine.first().alloc(100); });
    }
    CHECK(machine.current() == nullptr);
    machine.first().free(machine.first().alloc(100));
  }
}

}  // namespace
}  // namespace ucclep
