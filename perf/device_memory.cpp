// SPDX-License-Identifier: Apache-2.0
#include "device_memory.hpp"

#include <algorithm>
#include <cstring>

#include "api.hpp"

namespace ucclep::perf {

constexpr size_t portion_bytes = 4 << 20;

DeviceMemory::DeviceMemory(ucclEpComm_t comm, ucclEpStream_t stream, bool in_place)
    : comm_(comm), stream_(stream), in_place_(in_place) {}

DeviceMemory::~DeviceMemory() {
  ucclEpMemFreeHost(comm_, staging_);
}

std::byte* DeviceMemory::allocate(size_t bytes) {
  void* memory = nullptr;
  check(ucclEpMemAlloc(comm_, &memory, bytes), "ucclEpMemAlloc", comm_);
  return static_cast<std::byte*>(memory);
}

void DeviceMemory::free(std::byte* memory) {
  check(ucclEpMemFree(comm_, memory), "ucclEpMemFree", comm_);
}

std::byte* DeviceMemory::staging(size_t bytes) {
  if (bytes > staging_bytes_) {
    check(ucclEpMemFreeHost(comm_, staging_), "ucclEpMemFreeHost", comm_);
    staging_ = nullptr;
    void* memory = nullptr;
    check(ucclEpMemAllocHost(comm_, &memory, bytes), "ucclEpMemAllocHost", comm_);
    staging_ = static_cast<std::byte*>(memory);
    staging_bytes_ = bytes;
  }
  return staging_;
}

void DeviceMemory::copy(void* destination, const void* source, size_t bytes) {
  check(ucclEpMemcpy(comm_, destination, source, bytes, stream_), "ucclEpMemcpy", comm_);
  check(ucclEpStreamSynchronize(comm_, stream_), "ucclEpStreamSynchronize", comm_);
}

void DeviceMemory::fill_rows(std::byte* device, size_t row_bytes, int64_t rows,
                             const std::function<void(int64_t row, std::byte* where)>& fill) {
  const auto portion =
      in_place_ ? std::max<int64_t>(rows, 1) : static_cast<int64_t>(std::max<size_t>(1, portion_bytes / row_bytes));
  for (int64_t begin = 0; begin < rows; begin += portion) {
    const int64_t end = std::min(rows, begin + portion);
    std::byte* where = in_place_ ? device : staging(portion * row_bytes);
    for (int64_t row = begin; row < end; ++row) fill(row, where + (row - begin) * row_bytes);
    if (!in_place_) copy(device + begin * row_bytes, where, (end - begin) * row_bytes);
  }
}

void DeviceMemory::write(std::byte* device, const void* host, size_t bytes) {
  if (bytes > 0) fill_rows(device, bytes, 1, [&](int64_t, std::byte* where) { std::memcpy(where, host, bytes); });
}

const std::byte* DeviceMemory::read(const void* device, size_t bytes) {
  if (in_place_ || bytes == 0) return static_cast<const std::byte*>(device);
  copy(staging(bytes), device, bytes);
  return staging_;
}

}  // namespace ucclep::perf
