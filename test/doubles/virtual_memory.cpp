// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: an allocation is a memfd, a reservation a range of addresses that nobody may touch until
// an allocation is mapped there and access is given.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/fd.hpp"
#include "doubles/exports.hpp"

namespace ucclep::doubles {
namespace {

constexpr size_t granularity = 64 << 10;  // a small one: tests make thousands of windows

struct Allocation {
  Allocation(Fd memory, bool exportable, size_t bytes, DeviceOrdinal device = -1, bool for_nics = false)
      : fd(std::move(memory)), exportable(exportable), bytes(bytes), device(device), for_nics(for_nics) {
    live_device_bytes += static_cast<int64_t>(bytes);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() { live_device_bytes -= static_cast<int64_t>(bytes); }

  Fd fd;
  bool exportable;
  size_t bytes;          // 0: another process's
  DeviceOrdinal device;  // -1: likewise
  bool for_nics;
};

struct Reservation {
  size_t bytes;
  std::shared_ptr<Allocation> mapped = nullptr;
  std::set<DeviceOrdinal> allowed = {};
};

std::mutex mutex;
std::map<AllocationHandle, std::shared_ptr<Allocation>> allocations;
std::map<void*, Reservation> reservations;

AllocationHandle hold(std::shared_ptr<Allocation> allocation) {
  static AllocationHandle last = 0;
  allocations.emplace(++last, std::move(allocation));
  ++live_objects;
  return last;
}

const std::shared_ptr<Allocation>& allocation_of(AllocationHandle handle) {
  const auto found = allocations.find(handle);
  expect(found != allocations.end(), invalid_handle);
  return found->second;
}

// Where something is mapped; the end if nothing is at this address.
auto mapped_at(const void* data) {
  const auto after = reservations.upper_bound(const_cast<void*>(data));
  if (after == reservations.begin()) return reservations.end();
  const auto found = std::prev(after);
  const auto offset = static_cast<const char*>(data) - static_cast<char*>(found->first);
  const bool holds = found->second.mapped && offset < static_cast<ptrdiff_t>(found->second.bytes);
  return holds ? found : reservations.end();
}

Reservation& reservation(void* data, size_t bytes) {
  const auto found = reservations.find(data);
  expect(found != reservations.end() && found->second.bytes == bytes, invalid_value);
  return found->second;
}

void check_properties(const AllocationProperties& properties) {
  expect(properties.type == allocation_pinned &&
             (properties.handle_types == handle_posix_fd || properties.handle_types == 0) &&
             properties.location.type == location_device && properties.location.id >= 0 &&
             properties.location.id < gpu_count(),
         invalid_value);
  const bool may = attribute_of(properties.location.id, 110).value_or(0) != 0;
  expect(properties.rdma_capable == 0 || may, invalid_value);
}

// New memory holds garbage.
void fill(int fd, size_t bytes) {
  const std::vector<char> garbage(granularity, '\xa5');
  for (size_t at = 0; at < bytes; at += garbage.size()) {
    const ssize_t written = pwrite(fd, garbage.data(), garbage.size(), static_cast<off_t>(at));
    expect(written == static_cast<ssize_t>(garbage.size()), out_of_memory);
  }
}

// At `data` from now on: nothing that can be touched.
void block_addresses(void* data, size_t bytes) {
  void* at = mmap(data, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  expect(at == data, out_of_memory);
}

}  // namespace

std::optional<Range> mapped_range(const void* data) {
  const std::lock_guard lock(mutex);
  const auto found = mapped_at(data);
  if (found == reservations.end()) return std::nullopt;
  const Allocation& allocation = *found->second.mapped;
  return Range{found->first, found->second.bytes, allocation.device, allocation.for_nics};
}

Code allocation_granularity(size_t* bytes, const AllocationProperties* properties, int option) {
  return answer(__func__, [&] {
    check_properties(*properties);
    expect(option == granularity_recommended, invalid_value);
    *bytes = granularity;
  });
}

Code allocation_create(AllocationHandle* handle, size_t bytes, const AllocationProperties* properties,
                       unsigned long long flags) {
  return answer(__func__, [&] {
    check_properties(*properties);
    expect(bytes != 0 && bytes % granularity == 0 && flags == 0, invalid_value);
    Fd fd(memfd_create("gpu memory", MFD_CLOEXEC));
    expect(static_cast<bool>(fd), out_of_memory);
    fill(fd.get(), bytes);
    const std::lock_guard lock(mutex);
    *handle = hold(std::make_shared<Allocation>(std::move(fd), properties->handle_types != 0, bytes,
                                                properties->location.id, properties->rdma_capable != 0));
  });
}

// What is mapped at an address.
Code allocation_retain(AllocationHandle* handle, void* data) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    const auto found = mapped_at(data);
    expect(found != reservations.end(), invalid_value);
    *handle = hold(found->second.mapped);
  });
}

Code allocation_release(AllocationHandle handle) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    expect(allocations.erase(handle) == 1, invalid_handle);
    --live_objects;
  });
}

// The descriptor is the caller's, and is inherited unless the caller says otherwise.
Code allocation_export(void* shareable, AllocationHandle handle, int type, unsigned long long flags) {
  return answer(__func__, [&] {
    expect(type == handle_posix_fd && flags == 0, invalid_value);
    const std::lock_guard lock(mutex);
    const std::shared_ptr<Allocation>& allocation = allocation_of(handle);
    expect(allocation->exportable, not_supported);
    const int fd = dup(allocation->fd.get());
    expect(fd >= 0, unknown);
    *static_cast<int*>(shareable) = fd;
  });
}

// The descriptor stays the caller's.
Code allocation_import(AllocationHandle* handle, void* shareable, int type) {
  return answer(__func__, [&] {
    expect(type == handle_posix_fd, invalid_value);
    Fd fd(fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), F_DUPFD_CLOEXEC, 0));
    expect(static_cast<bool>(fd), invalid_value);
    const std::lock_guard lock(mutex);
    *handle = hold(std::make_shared<Allocation>(std::move(fd), true, 0));
  });
}

Code address_reserve(void** data, size_t bytes, size_t alignment, void* wanted, unsigned long long flags) {
  return answer(__func__, [&] {
    expect(bytes != 0 && bytes % granularity == 0 && alignment == 0 && wanted == nullptr && flags == 0, invalid_value);
    void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(at != MAP_FAILED, out_of_memory);
    const std::lock_guard lock(mutex);
    reservations.emplace(at, Reservation{bytes});
    ++live_objects;
    *data = at;
  });
}

Code address_free(void* data, size_t bytes) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    expect(!reservation(data, bytes).mapped, invalid_value);
    reservations.erase(data);
    munmap(data, bytes);
    --live_objects;
  });
}

Code map(void* data, size_t bytes, size_t offset, AllocationHandle handle, unsigned long long flags) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    Reservation& range = reservation(data, bytes);
    expect(!range.mapped && offset == 0 && flags == 0, invalid_value);
    const std::shared_ptr<Allocation>& allocation = allocation_of(handle);
    const int fd = allocation->fd.get();
    struct stat status;
    expect(fstat(fd, &status) == 0 && static_cast<size_t>(status.st_size) == bytes, invalid_value);
    expect(mmap(data, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == data, out_of_memory);
    range.mapped = allocation;
  });
}

Code unmap(void* data, size_t bytes) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    Reservation& range = reservation(data, bytes);
    expect(range.mapped != nullptr, invalid_value);
    block_addresses(data, bytes);
    range.mapped = nullptr;
    range.allowed.clear();
  });
}

// To a device once: drivers refuse the second time.
Code set_access(void* data, size_t bytes, const Access* access, size_t count) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    Reservation& range = reservation(data, bytes);
    expect(range.mapped && count == 1 && access->flags == access_read_write &&
               access->location.type == location_device && access->location.id < gpu_count(),
           invalid_value);
    expect(range.allowed.insert(access->location.id).second, invalid_value);
    expect(mprotect(data, bytes, PROT_READ | PROT_WRITE) == 0, unknown);
  });
}

Code get_access(unsigned long long* flags, const Location* location, void* data) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    const auto found = mapped_at(data);
    expect(found != reservations.end() && location->type == location_device, invalid_value);
    *flags = found->second.allowed.count(location->id) != 0 ? access_read_write : 0;
  });
}

}  // namespace ucclep::doubles
