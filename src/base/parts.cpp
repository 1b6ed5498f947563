// SPDX-License-Identifier: Apache-2.0
#include "base/parts.hpp"

#include <cstdint>
#include <iterator>

namespace ucclep {

Parts::Parts(void* data, size_t bytes, size_t alignment) : alignment_(alignment) {
  const uintptr_t past = -reinterpret_cast<uintptr_t>(data) % alignment;
  if (past < bytes) free_.emplace(static_cast<char*>(data) + past, (bytes - past) / alignment * alignment);
}

void* Parts::take(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - alignment_) return nullptr;
  bytes = rounded(bytes);
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

void Parts::give(void* part) noexcept {
  auto node = used_.extract(as_key(part));  // moved over: freeing allocates nothing
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

size_t Parts::bytes_from(const void* address) const {
  char* const at = as_key(address);
  const auto after = used_.upper_bound(at);
  if (after == used_.begin()) return 0;
  const auto& [data, bytes] = *std::prev(after);
  const auto offset = static_cast<size_t>(at - data);
  return offset < bytes ? bytes - offset : 0;
}

}  // namespace ucclep
