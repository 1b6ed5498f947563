// SPDX-License-Identifier: Apache-2.0
#include "host/memory/mem_pool.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
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

MemPool::MemPool(int device, void* data, size_t bytes) : device_(device) {
  const uintptr_t past = -reinterpret_cast<uintptr_t>(data) % alignment;
  if (past < bytes) free_.emplace(static_cast<char*>(data) + past, (bytes - past) / alignment * alignment);
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
    if (void* const part = (*pool)->take(bytes)) return part;
  }
  return nullptr;
}

void MemPool::free(void* part) {
  const std::lock_guard lock(pools().mutex);
  for (MemPool* pool : pools().open) {
    const auto found = pool->used_.find(static_cast<char*>(part));
    if (found != pool->used_.end()) return pool->give(found);
  }
}

// The smallest free part that is large enough; its beginning.
void* MemPool::take(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - alignment) return nullptr;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  auto best = free_.end();
  for (auto part = free_.begin(); part != free_.end(); ++part) {
    if (part->second >= bytes && (best == free_.end() || part->second < best->second)) best = part;
  }
  if (best == free_.end()) return nullptr;
  const auto [data, size] = *best;
  used_.emplace(data, bytes);
  if (size > bytes) free_.emplace_hint(std::next(best), data + bytes, size - bytes);
  free_.erase(best);
  return data;
}

void MemPool::give(std::map<char*, size_t>::iterator part) {
  auto node = used_.extract(part);  // moved over: freeing allocates nothing
  auto at = free_.insert(std::move(node)).position;
  const auto after = std::next(at);
  if (after != free_.end() && at->first + at->second == after->first) {
    at->second += after->second;
    free_.erase(after);
  }
  if (at == free_.begin()) return;
  const auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  free_.erase(at);
}

}  // namespace ucclep
