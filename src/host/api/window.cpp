// SPDX-License-Identifier: Apache-2.0
#include "host/memory/window_table.hpp"

#include <optional>
#include <utility>

#include "base/attempt.hpp"
#include "base/best_effort.hpp"
#include "base/log.hpp"
#include "bootstrap/agreement.hpp"
#include "host/boundary/guard.hpp"
#include "host/boundary/structs.hpp"
#include "host/context/communicator.hpp"
#include "host/context/teardown.hpp"
#include "host/group/group.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep {
namespace {

void check_range(const void* ptr, size_t bytes) {
  if (ptr == nullptr) fail(ucclEpInvalidArgument, "ptr is NULL");
  if (bytes == 0) fail(ucclEpInvalidArgument, "bytes is 0, expected at least 1");
  if (reinterpret_cast<uintptr_t>(ptr) > UINTPTR_MAX - bytes) {
    fail(ucclEpInvalidArgument, "bytes is {}, but the range from ptr {} on would exceed the address space", bytes, ptr);
  }
}

std::shared_ptr<DeviceMemory> allocation_around(const ucclEpComm& comm, void* ptr) {
  const auto after = comm.device_memory.upper_bound(ptr);
  if (after == comm.device_memory.begin()) return nullptr;
  const auto& memory = std::prev(after)->second;
  return memory->holds(ptr) ? memory : nullptr;
}

ucclEpWindow_t register_window(ucclEpComm& comm, void* ptr, size_t bytes) {
  constexpr const char* call = "ucclEpWindowRegister";
  auto window = std::make_unique<ucclEpWindow>(&comm);
  window->rank = comm.rank();
  window->id = comm.windows->free_id();
  std::shared_ptr<SharedMemory> own;
  const Deadline deadline = comm.deadline();
  Agreement agreement(call);
  agreement.field("the next window's id", window->id);
  agreement.attempt([&] {
    refuse_in_capture(comm);
    check_range(ptr, bytes);
    if (window->id >= max_windows) {
      fail(ucclEpInvalidUsage, "the communicator has {} windows, which is the maximum: deregister one first",
           max_windows);
    }
    own = comm.device->offer(ptr, bytes, !comm.one_process());
    if (comm.network) comm.network->check_window(*own);
    window->allocation = allocation_around(comm, ptr);
  });
  agreement.settle(*comm.bootstrap, deadline);
  window->memory = exchange_memory(comm, std::move(own), call, deadline);

  Agreement visible(call);
  visible.attempt([&] { comm.windows->write(*window, deadline); });
  visible.settle(*comm.bootstrap, deadline);
  if (comm.network)
    comm.network->add_window(window->id, *window->memory.of[static_cast<size_t>(comm.rank())], deadline);
  log::info("window", "registered window {} of {} bytes at {}", window->id, bytes, ptr);
  return comm.windows->insert(std::move(window));
}

// Kernels in flight may use what goes now. They end: all their waits are bounded, and watch the abort word.
// False: one has not, and may still use it.
bool drain(const ucclEpComm& comm, Deadline deadline) {
  bool ended = true;
  for (ucclEpGroup_t group : comm.groups) {
    best_effort("window", "ucclEpWindowDeregister continued after an error",
                [&] { ended = group->work.wait(deadline) == ucclEpSuccess && ended; });
  }
  return ended;
}

// The others may speak of another window, or of something else: then nobody deregisters anything.
void settle_on(const ucclEpComm& comm, Teardown& teardown, const ucclEpWindow& window) {
  std::optional<Error> refusal;
  teardown.meets([&] {
    Agreement agreement("ucclEpWindowDeregister");
    agreement.field("the window (by id)", window.id);
    refusal = attempt([&] { agreement.settle(*comm.bootstrap, teardown.deadline()); });
    if (!refusal || refusal->code() == ucclEpInvalidArgument || refusal->code() == ucclEpInvalidUsage) return;
    throw *std::exchange(refusal, std::nullopt);
  });
  if (refusal) throw *refusal;
}

void deregister_window(ucclEpComm& comm, ucclEpWindow_t window) {
  if (!comm.windows->has(window)) {
    fail(ucclEpInvalidArgument,
         "window {} is not registered on this communicator: it never was, or it was deregistered",
         static_cast<void*>(window));
  }
  Teardown teardown(comm, "ucclEpWindowDeregister", comm.deadline());
  const bool idle = drain(comm, teardown.deadline());
  if (comm.network && !comm.faults->fatal()) comm.network->settle(teardown.deadline());
  settle_on(comm, teardown, *window);
  if (comm.network) {
    best_effort("window", "NICs may still access the window", [&] { comm.network->remove_window(window->id); });
  }
  std::unique_ptr<ucclEpWindow> gone = comm.windows->take(window->id);
  if (!idle) {
    log::warn("window", "an operation still runs: the memory of window {} is not freed", gone->id);
    comm.kept.push_back(gone.release());
  }
  gone.reset();
  // From here on the caller may free his memory: then nobody may have it mapped any more.
  teardown.meets([&] { comm.bootstrap->barrier(teardown.deadline()); });
}

void fill(const ucclEpWindow& window, ucclEpDeviceWindow& out) {
  const WindowTable& table = *window.comm->windows;
  const SharedMemory& own = *window.memory.of[static_cast<size_t>(window.rank)];
  out.id = window.id;
  out.rank = window.rank;
  out.ranks = window.comm->nranks();
  out.bytes = own.bytes();
  out.data = static_cast<char*>(own.data());
  out.peers = table.addresses(window.id);
  out.peer_bytes = table.sizes(window.id);
}

}  // namespace

}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpWindowRegister(ucclEpComm_t comm, void* ptr, size_t bytes, ucclEpWindow_t* window) {
  return guarded("ucclEpWindowRegister", comm, [&] {
    usable(comm);
    require(window, "window");
    *window = register_window(*comm, ptr, bytes);
  });
}

ucclEpResult_t ucclEpWindowDeregister(ucclEpComm_t comm, ucclEpWindow_t window) {
  if (window == nullptr) return ucclEpSuccess;
  return guarded_destroying_part("ucclEpWindowDeregister", comm, [&] {
    require(comm, "comm");
    refuse_destruction_in_capture(*comm);
    deregister_window(*comm, window);
  });
}

ucclEpResult_t ucclEpWindowGetDevice(ucclEpWindow_t window, ucclEpDeviceWindow* out) {
  return guarded("ucclEpWindowGetDevice", window, [&] {
    require(window, "window");
    check_device_struct(out);
    fill(*window, *out);
  });
}

ucclEpResult_t ucclEpMemPoolOpen(ucclEpWindow_t window) {
  return guarded("ucclEpMemPoolOpen", window, [&] {
    require(window, "window");
    if (window->pool) {
      fail(ucclEpInvalidUsage, "window {} already has a pool, which exists until the window is deregistered",
           static_cast<void*>(window));
    }
    const SharedMemory& own = *window->memory.of[static_cast<size_t>(window->rank)];
    window->pool = std::make_unique<MemPool>(window->comm->traits.index, own.data(), own.bytes());
  });
}

void* ucclEpMemPoolAlloc(size_t bytes, int device, ucclEpStream_t) {
  try {
    return MemPool::allocate(device, bytes);
  } catch (...) {
    return nullptr;
  }
}

void ucclEpMemPoolFree(void* ptr, size_t, int, ucclEpStream_t) {
  MemPool::free(ptr);
}
