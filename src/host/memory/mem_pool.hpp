// SPDX-License-Identifier: Apache-2.0
// Parts of a window's memory for who allocates without a communicator: a framework's allocator calls plain functions,
// and at times of its own on each rank. The window was registered before, so nothing here is collective or asks the
// driver.
#pragma once
#include <cstddef>

#include "base/parts.hpp"

namespace ucclep {

class MemPool {
 public:
  // Until it is destroyed, allocations for the device find it.
  MemPool(int device, void* data, size_t bytes);
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;
  ~MemPool();

  // Any thread, of any pool. The newest pool of the device that has room; null: none has.
  static void* allocate(int device, size_t bytes);
  // What no pool has given is left alone: its pool ended before.
  static void free(void* part);

 private:
  int device_;
  Parts parts_;
};

}  // namespace ucclep
