// SPDX-License-Identifier: Apache-2.0
// Memory of the communicator's device, filled from the host and read back. On the host device the memory is used in
// place; a GPU's goes through a pinned staging buffer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

class DeviceMemory {
 public:
  DeviceMemory(ucclEpComm_t comm, ucclEpStream_t stream, bool in_place);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // The communicator frees what is left when it is destroyed.
  std::byte* allocate(size_t bytes);
  void free(std::byte* memory);
  // fill(row, where) writes row_bytes for each row of [0, rows).
  void fill_rows(std::byte* device, size_t row_bytes, int64_t rows,
                 const std::function<void(int64_t row, std::byte* where)>& fill);
  void write(std::byte* device, const void* host, size_t bytes);
  // Valid until the next call.
  const std::byte* read(const void* device, size_t bytes);

 private:
  std::byte* staging(size_t bytes);
  void copy(void* destination, const void* source, size_t bytes);

  ucclEpComm_t comm_;
  ucclEpStream_t stream_;
  bool in_place_;
  std::byte* staging_ = nullptr;
  size_t staging_bytes_ = 0;
};

}  // namespace ucclep::perf
