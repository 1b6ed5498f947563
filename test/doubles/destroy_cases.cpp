// SPDX-License-Identifier: Apache-2.0
// Destroying on a device whose driver fails: every call succeeds, frees what can be freed, and leaves a line in the
// log.
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "conformance/exchange.hpp"
#include "doubles/support.hpp"

namespace ucclep::test {
namespace {

constexpr const char* failing = "UCCLEP_DOUBLE_FAIL";

// Gives the library memory of its own, and counts what it has back.
struct CallersMemory {
  ucclEpComm_t comm = nullptr;
  int held = 0;

  static int take(void** ptr, size_t bytes, void* self) {
    auto& memory = *static_cast<CallersMemory*>(self);
    ++memory.held;
    return ucclEpMemAlloc(memory.comm, ptr, bytes);
  }
  static int give_back(void*, void* self) {
    --static_cast<CallersMemory*>(self)->held;  // it goes with the communicator
    return 0;
  }
};

// The library's warnings of a scope.
class Warnings {
 public:
  Warnings() { REQUIRE(truncate(path().c_str(), 0) == 0); }
  bool contain(const std::string& words) const {
    std::ifstream file(path());
    return std::string(std::istreambuf_iterator<char>(file), {}).find(words) != std::string::npos;
  }

 private:
  struct File {
    std::string name = "/tmp/ep-test-warnings-" + std::to_string(getpid());
    File() { std::ofstream{name}; }
    ~File() { unlink(name.c_str()); }
  };
  // One for the process, since the log keeps open what it has opened.
  static const std::string& path() {
    static const File file;
    return file.name;
  }
  const Setting level_{"UCCLEP_DEBUG", "WARN"}, file_{"UCCLEP_DEBUG_FILE", path()};
};

// One of everything, an operation behind it, destroyed while the driver fails as asked. Returns how many of the
// driver's objects were left behind.
int left_after_destroying_all(Rank& rank, int id, const std::string& failure) {
  const Double driver(comm_config(rank).device == UCCLEP_DEVICE_HIP ? gpu::hip_facts : gpu::cuda_facts);
  const int before = driver.live_objects();
  Scenario scenario;
  scenario.ranks = 1;
  ucclEpCommConfig_t config = comm_config(rank);
  ucclEpComm_t comm = nullptr;
  ok(ucclEpCommInitRank(&comm, 1, rank.ids[id], 0, &config), "ucclEpCommInitRank");
  CallersMemory memory{comm};
  ucclEpGroupConfig_t shape = group_config({scenario});
  shape.alloc_fn = CallersMemory::take;
  shape.free_fn = CallersMemory::give_back;
  shape.alloc_ctx = &memory;
  const ucclEpHandleConfig_t routing = handle_config(scenario);
  ucclEpGroup_t group = nullptr, plain_group = nullptr;
  ucclEpHandle_t handle = nullptr, other_handle = nullptr;
  ucclEpStream_t stream = nullptr, other_stream = nullptr;
  ucclEpEvent_t event = nullptr, other_event = nullptr;
  ucclEpWindow_t window = nullptr;
  void *block = nullptr, *other_block = nullptr, *host = nullptr, *other_host = nullptr;
  const ucclEpGroupConfig_t plain = group_config({scenario});
  ok(ucclEpGroupCreate(&group, comm, &shape), "ucclEpGroupCreate");
  ok(ucclEpGroupCreate(&plain_group, comm, &plain), "ucclEpGroupCreate");
  ok(ucclEpHandleCreate(&handle, group, &routing), "ucclEpHandleCreate");
  ok(ucclEpHandleCreate(&other_handle, plain_group, &routing), "ucclEpHandleCreate");
  for (ucclEpStream_t* made : {&stream, &other_stream}) ok(ucclEpStreamCreate(comm, made), "ucclEpStreamCreate");
  for (ucclEpEvent_t* made : {&event, &other_event}) ok(ucclEpEventCreate(comm, made), "ucclEpEventCreate");
  for (void** made : {&block, &other_block}) ok(ucclEpMemAlloc(comm, made, 4096), "ucclEpMemAlloc");
  for (void** made : {&host, &other_host}) ok(ucclEpMemAllocHost(comm, made, 4096), "ucclEpMemAllocHost");
  ok(ucclEpWindowRegister(comm, block, 4096, &window), "ucclEpWindowRegister");
  {
    Exchange exchange(rank, comm, scenario);
    exchange.update(handle, stream);
    exchange.dispatch(handle, stream);
    ok(ucclEpStreamSynchronize(comm, stream), "ucclEpStreamSynchronize");
  }
  {
    const Setting setting(failing, failure);
    ok(ucclEpWindowDeregister(comm, window), "ucclEpWindowDeregister");
    ok(ucclEpMemFree(comm, block), "ucclEpMemFree");
    ok(ucclEpMemFreeHost(comm, host), "ucclEpMemFreeHost");
    ok(ucclEpEventDestroy(comm, event), "ucclEpEventDestroy");
    ok(ucclEpStreamDestroy(comm, stream), "ucclEpStreamDestroy");
    ok(ucclEpHandleDestroy(handle), "ucclEpHandleDestroy");
    ok(ucclEpGroupDestroy(group), "ucclEpGroupDestroy");
    require(memory.held == 0, "the caller's memory did not come back");
    ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy");
  }
  return driver.live_objects() - before;
}

TEST_CASE("destroying succeeds after an error that every driver call repeats", "[driver]") {
  const Warnings warnings;
  run_ranks(1, {.communicators = 2}, [&](Rank& rank) {
    left_after_destroying_all(rank, 0, "all:719");
    for (const char* words :
         {"ucclEpGroupDestroy continued after an error: ", "ucclEpCommDestroy continued after an error: ",
          "destroying a stream", "freeing host memory", "unspecified launch failure (code 719)"}) {
      require(warnings.contain(words), std::string("the log does not say \"") + words + '"');
    }
    // What only asks after the device's work fails, what frees does not: nothing is left.
    require(left_after_destroying_all(rank, 1, "event_query:719") == 0, "an object of the driver was left behind");
  });
}

TEST_CASE("memory that the device does not give up in time is not freed, and the log says so", "[driver]") {
  const Warnings warnings;
  run_ranks(1, [&](Rank& rank) {
    const Double driver(comm_config(rank).device == UCCLEP_DEVICE_HIP ? gpu::hip_facts : gpu::cuda_facts);
    const int before = driver.live_objects();
    Scenario scenario;
    scenario.ranks = 1;
    ucclEpCommConfig_t config = comm_config(rank);
    config.timeout_ms = 500;
    ucclEpComm_t comm = nullptr;
    ok(ucclEpCommInitRank(&comm, 1, rank.ids[0], 0, &config), "ucclEpCommInitRank");
    const ucclEpGroupConfig_t shape = group_config({scenario});
    const ucclEpHandleConfig_t routing = handle_config(scenario);
    ucclEpGroup_t group = nullptr;
    ucclEpHandle_t handle = nullptr;
    ok(ucclEpGroupCreate(&group, comm, &shape), "ucclEpGroupCreate");
    ok(ucclEpHandleCreate(&handle, group, &routing), "ucclEpHandleCreate");
    const int all = driver.live_objects();
    const auto begin = std::chrono::steady_clock::now();
    const Setting setting(failing, "event_query:600");  // it is not ready, for ever
    ok(ucclEpGroupDestroy(group), "ucclEpGroupDestroy");
    ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy");
    require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(6), "destroying took too long");
    require(warnings.contain("an operation still runs"), "no line says that memory stays");
    require(driver.live_objects() == all && all > before, "something was freed");
  });
}

TEST_CASE("destroying frees all that the driver lets it free", "[driver]") {
  // Of each kind of object what exists when destroying begins, if this function alone fails.
  const std::pair<const char*, int> kinds[] = {
      {"event_destroy", 4}, {"stream_destroy", 4}, {"host_free", 5}, {"mem_free", 5}};
  for (const auto& [function, objects] : kinds) {
    const Warnings warnings;
    run_ranks(1, [&](Rank& rank) {
      const int left = left_after_destroying_all(rank, 0, std::string(function) + ":719");
      require(left == objects, std::string(function) + " fails: " + std::to_string(left) +
                                   " objects of the driver were left behind, expected " + std::to_string(objects));
      require(warnings.contain("code 719"), std::string(function) + " failed, and no line says so");
    });
  }
}

}  // namespace
}  // namespace ucclep::test
