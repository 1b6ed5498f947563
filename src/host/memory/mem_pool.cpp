// SPDX-License-Identifier: Apache-2.0
#include "host/memory/mem_pool.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/fork.hpp"

namespace ucclep {
namespace {

constexpr size_t alignment = 512;  // what allocators of frameworks expect of a driver's memory

struct Pools {
  std::mutex mutex;  // of the list, and of all pools in it
  std::vector<MemPool*> open;
};

Pools& pools() {
  constinit static PerProcess<Pools> all;
  return all.get();
}

}  // namespace

MemPool::MemPool(int device, void* data, size_t bytes) : device_(device), parts_(data, bytes, alignment) {
  const std::lock_guard lock(pools().mutex);
  pools().open.push_back(this);
}

MemPool::~MemPool() {
  const std::lock_guard lock(pools().mutex);
  pools().open.erase(std::find(pools().open.begin(), pools().open.end(), this));
}

void* MemPool::allocate(int device, size_t bytes) {
  const std::lock_guard lock(pools().mutex);
  for (auto pool = pools().open.rbegin(); pool != pools().open.rend(); ++pool) {
    if ((*pool)->device_ != device) continue;
    if (void* const part = (*pool)->parts_.take(bytes)) return part;
  }
  return nullptr;
}

void MemPool::free(void* part) {
  const std::lock_guard lock(pools().mutex);
  for (MemPool* pool : pools().open) {
    if (pool->parts_.owns(part)) return pool->parts_.give(part);
  }
}

}  // namespace ucclep
