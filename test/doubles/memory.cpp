// SPDX-License-Identifier: Apache-2.0
// Memory of a device and of the host. New memory holds garbage, as a driver's may. That of a device is a memfd, so that
// an IPC handle can lead another process to it: it names the descriptor in the owner's process.
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <string>

#include "base/fd.hpp"

#include "doubles/capture.hpp"
#include "doubles/exports.hpp"
#include "doubles/hooks.hpp"

namespace ucclep::doubles {
namespace {

constexpr int garbage = 0xa5;
constexpr int copy_default = 4;  // hipMemcpyDefault

// What an IPC handle holds.
struct Reference {
  pid_t owner;
  int fd;
  size_t offset, bytes;
  auto operator<=>(const Reference&) const = default;
};
static_assert(sizeof(Reference) <= sizeof(IpcHandle));

// A handle that is opened again gives the same addresses, until it was closed as often.
struct Opened {
  void* base = nullptr;
  int times = 0;
};

std::mutex mutex;
std::map<void*, Range> allocations;  // of devices
std::map<void*, size_t> of_host;
std::map<Reference, Opened> opened;
std::map<void*, Range> registered;  // of the host, by its address there: where devices see it

// How often, by the node that the thread prefers which has it done.
using ByNode = std::array<std::atomic<int>, 64>;
ByNode allocated_near, pinned_near;

void note_node(ByNode& times) {
  int policy = MPOL_DEFAULT;
  std::array<uint64_t, 16> nodes{};
  if (syscall(SYS_get_mempolicy, &policy, nodes.data(), 64 * nodes.size(), nullptr, 0ul) != 0) return;
  if (policy == MPOL_PREFERRED && nodes[0] != 0) ++times[static_cast<size_t>(std::countr_zero(nodes[0]))];
}

void* map_memory_of(const Reference& reference) {
  const std::string path = "/proc/" + std::to_string(reference.owner) + "/fd/" + std::to_string(reference.fd);
  const Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  expect(static_cast<bool>(fd), invalid_value);
  void* base = mmap(nullptr, reference.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(),
                    static_cast<off_t>(reference.offset));
  expect(base != MAP_FAILED, out_of_memory);
  return base;
}

void copy(void* to, const void* from, size_t bytes, Stream stream) {
  expect(bytes == 0 || (to != nullptr && from != nullptr), invalid_value);
  enqueue(stream, [=](Device& device, Stream in) { device.memcpy_async(to, from, bytes, in); });
}

}  // namespace

Code mem_alloc(void** data, size_t bytes) {
  return answer(__func__, [&] {
    expect(bytes != 0, invalid_value);
    expect_no_capture();
    *data = current_gpu().device->alloc_shareable(bytes, true);
    std::memset(*data, garbage, bytes);
    const std::lock_guard lock(mutex);
    allocations[*data] = {*data, bytes, current_gpu().ordinal, true};
    live_device_bytes += static_cast<int64_t>(bytes);
    ++live_objects;
  });
}

Code mem_free(void* data) {
  return answer(__func__, [&] {
    expect(data != nullptr, invalid_value);
    expect_no_capture();
    follow_streams(current_gpu());  // as a driver does, though this one does not wait for what still runs
    const std::lock_guard lock(mutex);
    current_gpu().device->free(data);
    if (const auto found = allocations.find(data); found != allocations.end()) {
      live_device_bytes -= static_cast<int64_t>(found->second.bytes);
      allocations.erase(found);
    }
    --live_objects;
  });
}

std::optional<Range> allocated_range(const void* data) {
  const std::lock_guard lock(mutex);
  const auto after = allocations.upper_bound(const_cast<void*>(data));
  if (after == allocations.begin()) return std::nullopt;
  const Range& range = std::prev(after)->second;
  const auto offset = static_cast<const char*>(data) - static_cast<char*>(range.base);
  return offset < static_cast<ptrdiff_t>(range.bytes) ? std::optional(range) : std::nullopt;
}

Code address_range(void** base, size_t* bytes, void* data) {
  return answer(__func__, [&] {
    std::optional<Range> range = mapped_range(data);
    if (!range) range = allocated_range(data);
    expect(range.has_value(), not_found);
    *base = range->base;
    *bytes = range->bytes;
  });
}

Code ipc_get(IpcHandle* handle, void* base) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    const auto found = allocations.find(base);
    expect(found != allocations.end(), invalid_value);
    const size_t bytes = found->second.bytes;
    const auto offer = current_gpu().device->offer(base, bytes, true);
    const Reference reference{getpid(), offer->fd(), offer->ticket().offset, bytes};
    std::memcpy(handle->bytes, &reference, sizeof reference);
  });
}

Code ipc_open(void** base, IpcHandle handle, unsigned flags) {
  return answer(__func__, [&] {
    Reference reference;
    std::memcpy(&reference, handle.bytes, sizeof reference);
    current_gpu();
    expect(flags == ipc_lazy_peer_access, invalid_value);
    expect(reference.owner != getpid(), invalid_context);
    const std::lock_guard lock(mutex);
    Opened& memory = opened[reference];
    if (memory.times == 0) memory.base = map_memory_of(reference);
    ++memory.times;
    ++live_objects;
    *base = memory.base;
  });
}

Code ipc_close(void* base) {
  return answer(__func__, [&] {
    current_gpu();
    const std::lock_guard lock(mutex);
    const auto found = std::ranges::find_if(opened, [base](const auto& entry) { return entry.second.base == base; });
    expect(found != opened.end(), invalid_value);
    --live_objects;
    if (--found->second.times > 0) return;
    munmap(base, found->first.bytes);
    opened.erase(found);
  });
}

Code host_alloc(void** data, size_t bytes, unsigned flags) {
  return answer(__func__, [&] {
    constexpr unsigned coherent = VENDOR(0, 0x40000000);
    expect(bytes != 0 && flags == (host_portable | host_mapped | coherent), invalid_value);
    expect_no_capture();
    note_node(allocated_near);
    *data = current_gpu().device->alloc_host(bytes);
    std::memset(*data, garbage, bytes);
    const std::lock_guard lock(mutex);
    of_host[*data] = bytes;
    live_host_bytes += static_cast<int64_t>(bytes);
    ++live_objects;
  });
}

Code host_free(void* data) {
  return answer(__func__, [&] {
    expect(data != nullptr, invalid_value);
    expect_no_capture();
    current_gpu().device->free_host(data);
    const std::lock_guard lock(mutex);
    if (const auto found = of_host.find(data); found != of_host.end()) {
      live_host_bytes -= static_cast<int64_t>(found->second);
      of_host.erase(found);
    }
    --live_objects;
  });
}

// Devices see registered memory at another address, as a driver may have it: what takes one for the other is wrong.
Code host_register(void* data, size_t bytes, unsigned flags) {
  return answer(__func__, [&] {
    current_gpu();
    expect(data != nullptr && bytes != 0 && flags == (host_portable | host_mapped), invalid_value);
    expect_no_capture();
    note_node(pinned_near);
    const std::lock_guard lock(mutex);
    expect(registered.count(data) == 0, already_registered);
    void* alias = mremap(data, 0, bytes, MREMAP_MAYMOVE);  // a second mapping of shared memory
    expect(alias != MAP_FAILED, invalid_value);
    registered[data] = {alias, bytes};
    live_host_bytes += static_cast<int64_t>(bytes);
    ++live_objects;
  });
}

Code host_unregister(void* data) {
  return answer(__func__, [&] {
    current_gpu();
    expect_no_capture();
    const std::lock_guard lock(mutex);
    const auto found = registered.find(data);
    expect(found != registered.end(), not_registered);
    munmap(found->second.base, found->second.bytes);
    live_host_bytes -= static_cast<int64_t>(found->second.bytes);
    registered.erase(found);
    --live_objects;
  });
}

Code host_device_address(void** on_device, void* data, unsigned flags) {
  return answer(__func__, [&] {
    current_gpu();
    expect(flags == 0, invalid_value);
    const std::lock_guard lock(mutex);
    const auto found = registered.find(data);
    expect(found != registered.end(), invalid_value);
    *on_device = found->second.base;
  });
}

// The host device's streams only copy: from zeros, as the library sets memory to nothing else.
Code memset_async(void* data, unsigned char value, size_t bytes, Stream stream) {
  return answer(__func__, [&] {
    static std::array<char, 1 << 20> zeros{};
    expect(value == 0, not_supported);
    for (size_t done = 0; done < bytes; done += zeros.size()) {
      copy(static_cast<char*>(data) + done, zeros.data(), std::min(bytes - done, zeros.size()), stream);
    }
  });
}

Code memcpy_async(void* to, const void* from, size_t bytes, Stream stream) {
  return answer(__func__, [&] { copy(to, from, bytes, stream); });
}

Code memcpy_async_kind(void* to, const void* from, size_t bytes, int kind, Stream stream) {
  return answer(__func__, [&] {
    expect(kind == copy_default, invalid_value);
    copy(to, from, bytes, stream);
  });
}

}  // namespace ucclep::doubles

void ucclep_double_host_memory_near(int node, int* allocated, int* pinned) {
  *allocated = ucclep::doubles::allocated_near.at(static_cast<size_t>(node));
  *pinned = ucclep::doubles::pinned_near.at(static_cast<size_t>(node));
}
