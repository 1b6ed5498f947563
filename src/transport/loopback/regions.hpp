// SPDX-License-Identifier: Apache-2.0
// Memory that peers reach, from both sides: what this endpoint has registered, and what a peer has.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.hpp"
#include "base/sealed_memory.hpp"
#include "transport/loopback/segment.hpp"

namespace ucclep::transport::loopback {

class OwnRegions {
 public:
  explicit OwnRegions(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}
  ~OwnRegions();
  OwnRegions(const OwnRegions&) = delete;
  OwnRegions& operator=(const OwnRegions&) = delete;

  uint32_t add(const Memory& memory, Key* key);
  // Waits until no peer writes there any more: as long as one copy takes, and no longer than a second.
  void remove(uint32_t region);
  // Null: there is no such region, or it ends before.
  char* at(uint32_t region, uint64_t offset, uint64_t bytes) const noexcept;

 private:
  struct Region {
    char* data = nullptr;
    uint64_t bytes = 0;
    std::shared_ptr<const Fd> fd;  // a number that stays while the key is valid; null: none
    bool used = false;
  };
  void withdraw(uint32_t region);
  std::shared_ptr<const Fd> descriptor_of(int fd) const;

  std::shared_ptr<Segment> segment_;
  std::vector<Region> regions_;
};

class PeerRegion {
 public:
  // Throws Error for a key that is none of this peer's.
  PeerRegion(std::shared_ptr<Segment> peer, const Key& key);

  enum class Outcome { done, gone, outside };
  // local: of the operation's local region. A region that its owner takes back meanwhile stays until the copy has
  // ended.
  Outcome copy(const Operation& operation, char* local) const noexcept;
  uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Segment> peer_;
  RegionEntry* entry_;
  uint32_t generation_;
  std::optional<SealedMemory> mapping_;
  char* data_;
  uint64_t bytes_;
};

}  // namespace ucclep::transport::loopback
