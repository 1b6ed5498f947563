// SPDX-License-Identifier: Apache-2.0
#include "transport/ofi/regions.hpp"

#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace ucclep::transport::ofi {
namespace {

fi_hmem_iface interface_of(uint32_t kind) {
  if (kind == UCCLEP_MEMORY_CUDA) return FI_HMEM_CUDA;
  return kind == UCCLEP_MEMORY_HIP ? FI_HMEM_ROCR : FI_HMEM_SYSTEM;
}

// A provider asks nobody who they are: who names a key may read and write its region. So nobody may guess one.
uint64_t random_key(size_t bytes) {
  const Token token = Token::random();
  uint64_t key = 0;
  std::memcpy(&key, token.bytes.data(), std::min(bytes, sizeof(key)));
  return key;
}

constexpr int key_attempts = 16;  // where keys are short, a random one may be taken

}  // namespace

Owned<fid_mr> Regions::register_with_domain(const Memory& memory) {
  const bool host = memory.kind == UCCLEP_MEMORY_HOST;
  const bool gpu = memory.kind == UCCLEP_MEMORY_CUDA || memory.kind == UCCLEP_MEMORY_HIP;
  if (!host && !(gpu && duties_.device_memory)) {
    fail(ucclEpNotSupported, "ofi: the provider cannot register memory of kind {}", memory.kind);
  }
  const iovec range{memory.data, memory.bytes};
  fi_mr_attr attributes{};
  attributes.mr_iov = &range;
  attributes.iov_count = 1;
  attributes.access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  attributes.iface = interface_of(memory.kind);
  if (memory.kind == UCCLEP_MEMORY_CUDA) attributes.device.cuda = memory.device;
  fid_mr* made = nullptr;
  int code = -FI_ENOKEY;
  for (int i = 0; i < key_attempts && code == -FI_ENOKEY; ++i) {
    attributes.requested_key = duties_.provider_keys ? 0 : random_key(duties_.key_bytes);
    code = fi_mr_regattr(&domain_, &attributes, duties_.region_events ? FI_RMA_EVENT : 0, &made);
  }
  Owned<fid_mr> mr(made);
  if (code == 0 && duties_.bind_regions) code = fi_mr_bind(mr.get(), &endpoint_.fid, 0);
  if (code == 0 && duties_.bind_regions) code = fi_mr_enable(mr.get());
  if (code != 0) {
    fail(ucclEpSystemError, "ofi: cannot register {} bytes at {}: {}", memory.bytes, memory.data, library_.words(code));
  }
  return mr;
}

uint32_t Regions::add(const Memory& memory, Key* key) {
  if (memory.data == nullptr || memory.bytes == 0) {
    fail(ucclEpInvalidArgument, "ofi: cannot register a region of {} bytes at {}: it must not be empty", memory.bytes,
         memory.data);
  }
  Owned<fid_mr> mr = register_with_domain(memory);
  const uint64_t base = duties_.virtual_addresses ? reinterpret_cast<uintptr_t>(memory.data) : 0;
  const OfiKey own{token_, fi_mr_key(mr.get()), base, memory.bytes};
  if (own.key == FI_KEY_NOTAVAIL) fail(ucclEpNotSupported, "ofi: the provider's keys are longer than 64 bits");
  *key = {};
  std::memcpy(key->bytes, &own, sizeof(own));
  auto place = std::find_if(regions_.begin(), regions_.end(), [](const Region& one) { return one.mr == nullptr; });
  if (place == regions_.end()) place = regions_.emplace(regions_.end());
  *place = {std::move(mr), static_cast<char*>(memory.data), memory.bytes};
  return static_cast<uint32_t>(place - regions_.begin());
}

void Regions::remove(uint32_t region) {
  if (find(region) == nullptr) fail(ucclEpInvalidArgument, "ofi: region {} is not registered", region);
  regions_[region] = {};
}

}  // namespace ucclep::transport::ofi
