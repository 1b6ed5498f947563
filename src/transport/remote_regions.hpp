// SPDX-License-Identifier: Apache-2.0
// Regions of peers that an endpoint has imported, by the numbers under which operations name them.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ucclep::transport {

template <class Region>
class RemoteRegions {
 public:
  uint32_t add(uint32_t peer, Region region) {
    const auto unused = std::find_if(entries_.begin(), entries_.end(), [](const auto& one) { return !one; });
    const auto number = static_cast<size_t>(unused - entries_.begin());
    if (number == entries_.size()) entries_.emplace_back();
    entries_[number].emplace(Entry{peer, std::move(region)});
    return static_cast<uint32_t>(number);
  }
  void remove(uint32_t number) noexcept {
    if (number < entries_.size()) entries_[number].reset();
  }
  void remove_all_of(uint32_t peer) noexcept {
    for (auto& entry : entries_) {
      if (entry && entry->peer == peer) entry.reset();
    }
  }
  // Null: there is no such region, or it is another peer's.
  const Region* find(uint32_t number, uint32_t peer) const noexcept {
    const bool known = number < entries_.size() && entries_[number] && entries_[number]->peer == peer;
    return known ? &entries_[number]->region : nullptr;
  }

 private:
  struct Entry {
    uint32_t peer;
    Region region;
  };
  std::vector<std::optional<Entry>> entries_;
};

}  // namespace ucclep::transport
