// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/regions.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace ucclep::transport::verbs {

Regions::Regions(const Library& library, ibv_pd& domain, uint32_t kinds, bool relaxed_ordering, const Token& token)
    : library_(library),
      domain_(domain),
      kinds_(kinds),
      access_(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
              (relaxed_ordering ? unsigned{IBV_ACCESS_RELAXED_ORDERING} : 0u)),
      token_(token) {}

MemoryRegion Regions::register_with_domain(const Memory& memory) const {
  if (!std::has_single_bit(memory.kind) || (memory.kind & kinds_) == 0) {
    fail(ucclEpNotSupported, "verbs: the NIC cannot register memory of kind {}", memory.kind);
  }
  const auto base = reinterpret_cast<uintptr_t>(memory.data);
  MemoryRegion region(
      memory.kind == UCCLEP_MEMORY_DMABUF
          ? library_.reg_dmabuf_mr(&domain_, memory.fd_offset, memory.bytes, base, memory.fd, static_cast<int>(access_))
          : library_.reg_mr(&domain_, memory.data, memory.bytes, base, access_),
      {&library_});
  if (region == nullptr) {
    fail(ucclEpSystemError, "verbs: cannot register {} bytes at {}: {}", memory.bytes, memory.data, errno_text(errno));
  }
  return region;
}

uint32_t Regions::add(const Memory& memory, Key* key) {
  if (memory.data == nullptr || memory.bytes == 0) {
    fail(ucclEpInvalidArgument, "verbs: cannot register a region of {} bytes at {}: it must not be empty", memory.bytes,
         memory.data);
  }
  MemoryRegion region = register_with_domain(memory);
  const auto base = reinterpret_cast<uintptr_t>(memory.data);
  const VerbsKey own{token_, base, memory.bytes, region->rkey, 0};
  *key = {};
  std::memcpy(key->bytes, &own, sizeof(own));
  auto place = std::find_if(regions_.begin(), regions_.end(), [](const Region& one) { return !one.registered; });
  if (place == regions_.end()) place = regions_.emplace(regions_.end());
  *place = {std::move(region), base, memory.bytes};
  return static_cast<uint32_t>(place - regions_.begin());
}

void Regions::remove(uint32_t region) {
  if (find(region) == nullptr) fail(ucclEpInvalidArgument, "verbs: region {} is not registered", region);
  regions_[region] = {};
}

}  // namespace ucclep::transport::verbs
