// SPDX-License-Identifier: Apache-2.0
// Memory of this endpoint that is registered with its protection domain, and the keys by which peers name it.
#pragma once
#include <cstdint>
#include <vector>

#include "base/token.hpp"
#include "transport/transport.hpp"
#include "transport/verbs/library.hpp"

namespace ucclep::transport::verbs {

// The content of a Key. It names its endpoint: a key of another one is refused when it is imported.
struct VerbsKey {
  Token endpoint;
  uint64_t base, bytes;
  uint32_t rkey, unused;
};
static_assert(sizeof(VerbsKey) <= sizeof(Key));

class Regions {
 public:
  struct Region {
    MemoryRegion registered;
    uint64_t base = 0, bytes = 0;
    bool holds(uint64_t offset, uint64_t count) const { return offset <= bytes && count <= bytes - offset; }
  };

  // kinds: bits of UCCLEP_MEMORY_* that may be registered.
  Regions(const Library& library, ibv_pd& domain, uint32_t kinds, bool relaxed_ordering, const Token& token);

  uint32_t add(const Memory& memory, Key* key);
  void remove(uint32_t region);
  // Null: there is no such region.
  const Region* find(uint32_t region) const noexcept {
    return region < regions_.size() && regions_[region].registered != nullptr ? &regions_[region] : nullptr;
  }

 private:
  MemoryRegion register_with_domain(const Memory& memory) const;

  const Library& library_;
  ibv_pd& domain_;
  uint32_t kinds_;
  unsigned access_;
  Token token_;
  std::vector<Region> regions_;
};

}  // namespace ucclep::transport::verbs
