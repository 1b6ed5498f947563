// SPDX-License-Identifier: Apache-2.0
// Windows over memory of a GPU that the caller allocated himself, with the driver's functions.
#include <catch2/catch.hpp>
#include <functional>

#include "conformance/windows.hpp"
#include "device/gpu_driver/driver.hpp"

namespace ucclep::test {
namespace {

const gpu::Driver& driver_of(const ucclEpCommInfo_t& info) {
  return gpu::Driver::get(info.device == UCCLEP_DEVICE_HIP ? gpu::hip_facts : gpu::cuda_facts);
}

ucclEpCommInfo_t info_of(ucclEpComm_t comm) {
  ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
  ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
  return info;
}

// A program's own use of the device of a communicator.
class Caller {
 public:
  explicit Caller(ucclEpComm_t comm) : driver_(driver_of(info_of(comm))) {
    driver_.check(driver_.api().device_get(&device_, info_of(comm).device_index), "device_get");
    driver_.check(driver_.api().primary_context_retain(&context_, device_), "primary_context_retain");
    driver_.check(driver_.api().context_set_current(context_), "context_set_current");
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() {
    while (!undo_.empty()) {
      undo_.back()();
      undo_.pop_back();
    }
    driver_.api().context_set_current(nullptr);
    driver_.api().primary_context_release(device_);
  }

  char* ordinary(size_t bytes) {
    void* data = nullptr;
    driver_.check(driver_.api().mem_alloc(&data, bytes), "mem_alloc");
    undo_.push_back([this, data] { driver_.api().mem_free(data); });
    return static_cast<char*>(data);
  }
  char* pinned(size_t bytes) {
    void* data = nullptr;
    driver_.check(
        driver_.api().host_alloc(&data, bytes, gpu::host_portable | gpu::host_mapped | driver_.facts().coherent),
        "host_alloc");
    undo_.push_back([this, data] { driver_.api().host_free(data); });
    return static_cast<char*>(data);
  }
  char* virtual_memory(bool exportable) {
    const gpu::DriverApi& api = driver_.api();
    gpu::AllocationProperties properties{};
    properties.type = gpu::allocation_pinned;
    properties.handle_types = exportable ? gpu::handle_posix_fd : 0;
    properties.location = {gpu::location_device, device_};
    size_t bytes = 0;
    driver_.check(api.allocation_granularity(&bytes, &properties, gpu::granularity_recommended), "granularity");
    gpu::AllocationHandle handle = 0;
    driver_.check(api.allocation_create(&handle, bytes, &properties, 0), "allocation_create");
    undo_.push_back([this, handle] { driver_.api().allocation_release(handle); });
    void* data = nullptr;
    driver_.check(api.address_reserve(&data, bytes, 0, nullptr, 0), "address_reserve");
    undo_.push_back([this, data, bytes] { driver_.api().address_free(data, bytes); });
    driver_.check(api.map(data, bytes, 0, handle, 0), "map");
    undo_.push_back([this, data, bytes] { driver_.api().unmap(data, bytes); });
    const gpu::Access access{{gpu::location_device, device_}, gpu::access_read_write};
    driver_.check(api.set_access(data, bytes, &access, 1), "set_access");
    return static_cast<char*>(data);
  }

 private:
  const gpu::Driver& driver_;
  gpu::DeviceOrdinal device_ = 0;
  gpu::Context context_ = nullptr;
  std::vector<std::function<void()>> undo_;
};

// Two windows over the memory that every rank brings, one inside the other.
void register_and_use(const std::function<char*(Rank&, Caller&, ucclEpComm_t)>& bring) {
  run_ranks(4, [&](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    Caller caller(comm);
    char* const memory = bring(rank, caller, comm);
    const ucclEpWindow_t outer = registered(comm, memory, 2 * page);
    const ucclEpWindow_t inner = registered(comm, memory + page + 16 * rank.rank, 2000);
    exchange_through(rank, together, comm, outer, memory);
    exchange_through(rank, together, comm, inner, memory + page + 16 * rank.rank);
    deregister(comm, outer);
    exchange_through(rank, together, comm, inner, memory + page + 16 * rank.rank);
    deregister(comm, inner);
  });
}

TEST_CASE("windows: ordinary memory of the caller's", "[process][driver][gpu]") {
  register_and_use([](Rank&, Caller& caller, ucclEpComm_t) { return caller.ordinary(3 * page) + 512; });
}

TEST_CASE("windows: virtual memory of the caller's", "[process][driver][gpu]") {
  register_and_use([](Rank&, Caller& caller, ucclEpComm_t) { return caller.virtual_memory(true); });
}

TEST_CASE("windows: every rank brings memory of another kind", "[process][driver][gpu]") {
  register_and_use([&](Rank& rank, Caller& caller, ucclEpComm_t comm) -> char* {
    if (rank.rank == 0) return caller.ordinary(2 * page);
    if (rank.rank == 1) return caller.virtual_memory(true);
    void* memory = nullptr;
    ok(ucclEpMemAlloc(comm, &memory, 2 * page), "ucclEpMemAlloc");
    return static_cast<char*>(memory);
  });
}

TEST_CASE("windows: memory that peers cannot reach is refused on all ranks", "[process][driver][gpu]") {
  run_ranks(3, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    Caller caller(comm);
    char* const good = caller.ordinary(page);
    const bool bad = rank.rank == 1;
    ucclEpWindow_t window = nullptr;
    char* const pinned = caller.pinned(page);
    refused(ucclEpWindowRegister(comm, bad ? pinned : good, page, &window), ucclEpNotSupported, "ucclEpWindowRegister",
            {"rank 1", "cannot be shared"});
    refused(ucclEpWindowRegister(comm, good, bad ? size_t{1} << 40 : page, &window), ucclEpNotSupported,
            "ucclEpWindowRegister", {"rank 1", "the allocation there ends after"});
    char* const closed = caller.virtual_memory(false);
    if (ranks_are_processes()) {
      refused(ucclEpWindowRegister(comm, bad ? closed : good, page, &window), ucclEpNotSupported,
              "ucclEpWindowRegister", {"rank 1", "no file descriptor"});
      require(window == nullptr, "a refused call wrote its out-parameter");
    } else {
      window = registered(comm, bad ? closed : good, page);
      exchange_through(rank, together, comm, window, bad ? closed : good);
      deregister(comm, window);
    }
    window = registered(comm, good, page);
    exchange_through(rank, together, comm, window, good);
    deregister(comm, window);
  });
}

}  // namespace
}  // namespace ucclep::test
