// SPDX-License-Identifier: Apache-2.0
// Memory of this endpoint that is registered with its domain, and the keys by which peers name it.
#pragma once
#include <cstdint>
#include <vector>

#include "base/token.hpp"
#include "transport/ofi/objects.hpp"
#include "transport/ofi/provider.hpp"

namespace ucclep::transport::ofi {

// The content of a Key. A key of another endpoint is refused when it is imported: not every provider would notice.
struct OfiKey {
  Token endpoint;
  uint64_t key, base, bytes;  // base: what offset 0 is called on the wire
};
static_assert(sizeof(OfiKey) <= sizeof(Key));

class Regions {
 public:
  struct Region {
    Owned<fid_mr> mr;
    char* data = nullptr;
    uint64_t bytes = 0;
    bool holds(uint64_t offset, uint64_t count) const { return offset <= bytes && count <= bytes - offset; }
  };

  Regions(const Library& library, const Duties& duties, fid_domain& domain, fid_ep& endpoint, const Token& token)
      : library_(library), duties_(duties), domain_(domain), endpoint_(endpoint), token_(token) {}

  uint32_t add(const Memory& memory, Key* key);
  void remove(uint32_t region);
  // Null: there is no such region.
  const Region* find(uint32_t region) const noexcept {
    return region < regions_.size() && regions_[region].mr != nullptr ? &regions_[region] : nullptr;
  }

 private:
  Owned<fid_mr> register_with_domain(const Memory& memory);

  const Library& library_;
  Duties duties_;
  fid_domain& domain_;
  fid_ep& endpoint_;
  Token token_;
  std::vector<Region> regions_;
};

}  // namespace ucclep::transport::ofi
