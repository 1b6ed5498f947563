// SPDX-License-Identifier: Apache-2.0
#include <rdma/fi_errno.h>

#include "doubles/fabric/objects.hpp"
#include "doubles/gpu_memory.hpp"

namespace ucclep::test {
namespace {

Region& region_of(fid* fid) {
  return static_cast<Region&>(*reinterpret_cast<fid_mr*>(fid));
}

int close_region(fid* fid) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  Region& region = region_of(fid);
  wire.regions.erase({region.domain, region.key});
  --region.domain->regions;
  if (region.bound != nullptr) --region.bound->bound;
  delete &region;
  return 0;
}

int bind_region(fid* fid, ::fid* to, uint64_t) {
  const std::lock_guard lock(Wire::get().lock);
  Region& region = region_of(fid);
  if ((region.domain->row->mr_mode & FI_MR_ENDPOINT) == 0 || to->fclass != FI_CLASS_EP || region.bound != nullptr) {
    return -FI_EINVAL;
  }
  region.bound = &end_of(to);
  ++region.bound->bound;
  return 0;
}

int enable_region(fid* fid, int command, void*) {
  const std::lock_guard lock(Wire::get().lock);
  Region& region = region_of(fid);
  if (command != FI_ENABLE || region.bound == nullptr || !region.bound->enabled) return -FI_EINVAL;
  region.enabled = true;
  return 0;
}

// Memory of a GPU is called so. The provider makes the dma-buf itself, where the GPU has some.
bool takes(const Domain& domain, const fi_mr_attr& wanted) {
  const int gpu = doubles::nic_access(wanted.mr_iov->iov_base);
  if (wanted.iface == FI_HMEM_SYSTEM) return gpu == 0;
  return wanted.iface == FI_HMEM_CUDA && domain.device_memory &&
         (gpu & (ucclep_double_by_address | ucclep_double_by_dma_buf)) != 0;
}

fi_ops region_ops = table<fi_ops>([](auto& t) {
  t.close = close_region;
  t.bind = bind_region;
  t.control = enable_region;
});

}  // namespace

int register_region(fid* of, const fi_mr_attr* wanted, uint64_t flags, fid_mr** made) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  Domain& domain = domain_of(reinterpret_cast<fid_domain*>(of));
  const ProviderRow& row = *domain.row;
  wire.seen.region_flags = flags;
  if ((flags & ~(row.caps & FI_RMA_EVENT)) != 0) return -FI_EBADFLAGS;
  if (wanted->iov_count != 1 || !takes(domain, *wanted)) return -FI_EINVAL;
  if (domain.regions == row.regions) return -FI_ENOSPC;
  const bool own_keys = (row.mr_mode & FI_MR_PROV_KEY) == 0;
  const uint64_t number = wire.next_number++ * 16 + 1;
  const uint64_t key = own_keys ? wanted->requested_key : number;
  if (wire.regions.count({&domain, key}) == 1) return -FI_ENOKEY;
  auto* region = new Region{};
  region->fid = {FI_CLASS_MR, wanted->context, &region_ops};
  region->mem_desc = region;
  region->key = key;
  region->domain = &domain;
  region->data = static_cast<char*>(wanted->mr_iov->iov_base);
  region->bytes = wanted->mr_iov->iov_len;
  region->base = (row.mr_mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<uint64_t>(region->data) : 0;
  region->events = (flags & FI_RMA_EVENT) != 0;
  region->enabled = (row.mr_mode & FI_MR_ENDPOINT) == 0;
  wire.regions[{&domain, key}] = region;
  ++domain.regions;
  *made = region;
  return 0;
}

}  // namespace ucclep::test
