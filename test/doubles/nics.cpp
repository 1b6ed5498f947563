// SPDX-License-Identifier: Apache-2.0
// Memory of devices for NICs. What these write there is not in the memory before it is flushed, where the device's
// attributes say that writes are in no order.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/fd.hpp"
#include "doubles/dma_buf.hpp"
#include "doubles/exports.hpp"
#include "doubles/hooks.hpp"

namespace ucclep::doubles {
namespace {

constexpr int peer_memory = VENDOR(116, -1), dma_bufs = VENDOR(124, -1), flush_options = VENDOR(117, -1),
              writes_ordering = VENDOR(118, -1);
constexpr int to_owner = 100, to_all_devices = 200;
constexpr size_t page = 4096, unit = 2 << 20;  // of the host; of device memory

struct Pending {
  DeviceOrdinal device;
  char* to;
  std::vector<char> bytes;
};

std::mutex mutex;
std::vector<Pending> pending;  // as it was written
int flushes[2] = {};           // by scope

std::optional<Range> range_of(const void* data) {
  const std::optional<Range> range = mapped_range(data);
  return range ? range : allocated_range(data);
}

int attribute(DeviceOrdinal device, int number) {
  return attribute_of(device, number).value_or(0);
}

}  // namespace

Code dma_buf(void* made, void* data, size_t bytes, int type, unsigned long long flags) {
  return answer(__func__, [&] {
    current_gpu();
    const bool whole = reinterpret_cast<uintptr_t>(data) % page == 0 && bytes % page == 0 && bytes != 0;
    expect(whole && type == 1 && flags == 0, invalid_value);
    const std::optional<Range> range = range_of(data);
    expect(range.has_value() && range->device >= 0, invalid_value);
    const auto offset = static_cast<size_t>(static_cast<char*>(data) - static_cast<char*>(range->base));
    expect(offset + bytes <= (range->bytes + unit - 1) / unit * unit, invalid_value);
    expect(range->for_nics && attribute(range->device, dma_bufs) != 0, not_supported);
    Fd fd(memfd_create("dma-buf", 0));  // inherited, unless the caller says otherwise
    const DmaBufContent content{.data = static_cast<char*>(data), .bytes = bytes};
    expect(write(fd.get(), &content, sizeof content) == sizeof content, unknown);
    *static_cast<int*>(made) = fd.release();
  });
}

// Of the current context's device.
Code flush_nic_writes(int target, int scope) {
  return answer(__func__, [&] {
    const DeviceOrdinal device = current_gpu().ordinal;
    expect(target == 0 && (scope == to_owner || scope == to_all_devices), invalid_value);
    expect((attribute(device, flush_options) & 1) != 0, not_supported);
    const std::lock_guard lock(mutex);
    ++flushes[scope == to_all_devices ? 1 : 0];
    std::erase_if(pending, [device](const Pending& write) {
      if (write.device != device) return false;
      std::memcpy(write.to, write.bytes.data(), write.bytes.size());
      return true;
    });
  });
}

}  // namespace ucclep::doubles

using namespace ucclep::doubles;

int ucclep_double_nic_access(const void* data) {
  const std::optional<Range> range = range_of(data);
  if (!range) return 0;
  const char* peers = std::getenv("UCCLEP_DOUBLE_PEER_MEMORY");
  const bool by_address = peers != nullptr && *peers == '1' && attribute(range->device, peer_memory) != 0;
  const bool by_dma_buf = attribute(range->device, dma_bufs) != 0;
  return ucclep_double_of_device | (by_address && range->for_nics ? ucclep_double_by_address : 0) |
         (by_dma_buf && range->for_nics ? ucclep_double_by_dma_buf : 0);
}

void ucclep_double_nic_write(void* to, const void* from, size_t bytes) {
  const std::optional<Range> range = range_of(to);
  if (!range || attribute(range->device, writes_ordering) >= to_owner) {
    std::memmove(to, from, bytes);
    return;
  }
  const auto* begin = static_cast<const char*>(from);
  const std::lock_guard lock(mutex);
  pending.push_back({range->device, static_cast<char*>(to), {begin, begin + bytes}});
}

int ucclep_double_flushes(int scope) {
  const std::lock_guard lock(mutex);
  return flushes[scope == to_all_devices ? 1 : 0];
}
