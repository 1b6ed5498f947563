// SPDX-License-Identifier: Apache-2.0
#include "doubles/fabric/providers.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "doubles/fabric/wire.hpp"

namespace ucclep::test {
namespace {

constexpr size_t none = ProviderRow::unknown;
constexpr int efa_regions = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr uint64_t endless = ~uint64_t{0};
// By the sources and manual pages of libfabric 2.x. Queues are shorter than those of real devices, to be filled soon.
constexpr ProviderRow rows[] = {
    // The device itself (SRD). Without "unsolicited write receive" each immediate uses up a receive, and a write cannot
    // be injected although a send can.
    {"efa-direct", "efa", "efa-direct", FI_HMEM, FI_CONTEXT2 | FI_RX_CQ_DATA, efa_regions | FI_MR_LOCAL, 4, 4, 128, 256,
     32, 1 << 30, 0, 1 << 30, 64, false, false, 2, 0},
    // With software above it, on a device that needs no receives.
    {"efa", "efa", "efa", FI_HMEM, 0, efa_regions, 4, 4, 256, 256, 3928, endless, 3928, 1 << 30, 64, false, false, 1,
     0},
    // An immediate needs a region that was registered for events.
    {"cxi", "cxi", "cxi", FI_HMEM | FI_RMA_EVENT, 0, FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 8, 8, 512, 1024,
     192, 0xffffffff, none, none, 100, false, true, 0, 0},
    {"tcp", "tcp", "tcp", FI_RMA_EVENT, 0, 0, 8, 8, 256, 256, 128, endless, none, none, 1024, true, false, 0, 0},
    {"net", "net", "net", FI_RMA_EVENT, 0, 0, 8, 8, 256, 256, 128, endless, none, none, 1024, true, false, 0, 0},
    {"shm", "shm", "shm", FI_RMA_EVENT | FI_HMEM, 0, FI_MR_VIRT_ADDR, 8, 8, 1024, 1024, 4096, endless, none, none, 1024,
     true, false, 0, 0},
    {"rxm", "verbs;ofi_rxm", "IB-0xfe80000000000000", 0, 0, efa_regions | FI_MR_LOCAL, 4, 4, 192, 192, 192, 1 << 30,
     none, none, 256, true, false, 0, 5},
};

std::vector<const ProviderRow*> played() {
  std::vector<const ProviderRow*> list;
  const char* names = std::getenv("UCCLEP_DOUBLE_PROVIDERS");
  std::istringstream stream(names != nullptr ? names : "");
  for (std::string name; std::getline(stream, name, ',');) {
    for (const ProviderRow& row : rows) {
      if (name == row.row) list.push_back(&row);
    }
  }
  return list;
}

char* copy(const char* text) {
  return text != nullptr ? strdup(text) : nullptr;
}

template <class Part>
Part* copy(const Part* part) {
  auto* made = static_cast<Part*>(std::calloc(1, sizeof(Part)));
  if (part != nullptr) *made = *part;
  return made;
}

fi_info* blank() {
  auto* info = copy<fi_info>(nullptr);
  info->tx_attr = copy<fi_tx_attr>(nullptr);
  info->rx_attr = copy<fi_rx_attr>(nullptr);
  info->ep_attr = copy<fi_ep_attr>(nullptr);
  info->domain_attr = copy<fi_domain_attr>(nullptr);
  info->fabric_attr = copy<fi_fabric_attr>(nullptr);
  return info;
}

constexpr uint64_t transmits = FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE;
constexpr uint64_t receives = FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;

bool fits(const ProviderRow& row, const fi_info& hints) {
  const char* provider = hints.fabric_attr->prov_name;
  const auto mr_mode = static_cast<unsigned>(hints.domain_attr->mr_mode);
  unsigned needed = static_cast<unsigned>(row.mr_mode);
  if ((hints.caps & FI_HMEM) != 0) needed |= FI_MR_HMEM;
  return (provider == nullptr || std::strcmp(provider, row.provider) == 0) &&
         (hints.caps & ~(row.caps | transmits | receives)) == 0 && (row.mode & ~hints.mode) == 0 &&
         (needed & ~mr_mode) == 0 && hints.domain_attr->cq_data_size <= row.data_bytes;
}

fi_info* info_of(const ProviderRow& row, const fi_info& hints, int domain) {
  fi_info* info = blank();
  const bool device_memory = (hints.caps & FI_HMEM) != 0;
  // Secondary capabilities that cost something are there for those who ask.
  info->caps = transmits | receives | (hints.caps & row.caps);
  info->mode = row.mode;
  *info->tx_attr = {.caps = transmits,
                    .mode = row.mode,
                    .op_flags = 0,
                    .msg_order = 0,
                    .comp_order = 0,
                    .inject_size = device_memory ? 0 : row.inject,
                    .size = row.sends,
                    .iov_limit = 1,
                    .rma_iov_limit = 1,
                    .tclass = 0};
  info->rx_attr->caps = receives;
  info->rx_attr->mode = row.mode;
  info->rx_attr->size = row.receives;
  info->ep_attr->type = FI_EP_RDM;
  info->ep_attr->max_msg_size = row.max_message;
  info->domain_attr->name = copy((std::string(row.provider) + "_" + std::to_string(domain)).c_str());
  info->domain_attr->threading = FI_THREAD_DOMAIN;
  info->domain_attr->resource_mgmt = FI_RM_ENABLED;
  info->domain_attr->mr_mode = row.mr_mode | (device_memory ? FI_MR_HMEM : 0);
  info->domain_attr->mr_key_size = row.key_bytes;
  info->domain_attr->cq_data_size = row.data_bytes;
  info->fabric_attr->name = copy(row.fabric);
  info->fabric_attr->prov_name = copy(row.provider);
  return info;
}

}  // namespace

const ProviderRow& row_of(const fi_info& info) {
  return *std::find_if(std::begin(rows), std::end(rows), [&](const ProviderRow& row) {
    return std::strcmp(row.provider, info.fabric_attr->prov_name) == 0 &&
           std::strcmp(row.fabric, info.fabric_attr->name) == 0;
  });
}

}  // namespace ucclep::test

using namespace ucclep::test;

extern "C" {

// "1.16": what UCCLEP_DOUBLE_LIBFABRIC says, or a version that does all.
uint32_t fi_version() {
  const char* text = std::getenv("UCCLEP_DOUBLE_LIBFABRIC");
  unsigned minor = 22;
  if (text != nullptr) std::sscanf(text, "1.%u", &minor);
  return FI_VERSION(1, minor);
}

const char* fi_strerror(int code) {
  switch (std::abs(code)) {
    case FI_EINVAL:
      return "Invalid argument";
    case FI_EIO:
      return "Input/output error";
    case FI_ENOSYS:
      return "Function not implemented";
    case FI_EMSGSIZE:
      return "Message too long";
    case FI_EHOSTUNREACH:
      return "No route to host";
    default:
      return "Another error";
  }
}

fi_info* fi_dupinfo(const fi_info* of) {
  if (of == nullptr) return blank();
  auto* info = copy(of);
  info->next = nullptr;
  info->tx_attr = copy(of->tx_attr);
  info->rx_attr = copy(of->rx_attr);
  info->ep_attr = copy(of->ep_attr);
  info->domain_attr = copy(of->domain_attr);
  info->domain_attr->name = copy(of->domain_attr->name);
  info->fabric_attr = copy(of->fabric_attr);
  info->fabric_attr->name = copy(of->fabric_attr->name);
  info->fabric_attr->prov_name = copy(of->fabric_attr->prov_name);
  return info;
}

void fi_freeinfo(fi_info* info) {
  while (info != nullptr) {
    fi_info* next = info->next;
    std::free(info->fabric_attr->prov_name);
    std::free(info->fabric_attr->name);
    std::free(info->domain_attr->name);
    for (void* part :
         {static_cast<void*>(info->tx_attr), static_cast<void*>(info->rx_attr), static_cast<void*>(info->ep_attr),
          static_cast<void*>(info->domain_attr), static_cast<void*>(info->fabric_attr)}) {
      std::free(part);
    }
    std::free(info);
    info = next;
  }
}

int fi_getinfo(uint32_t version, const char*, const char*, uint64_t, const fi_info* hints, fi_info** list) {
  if (version > fi_version()) return -FI_ENOSYS;
  {
    Wire& wire = Wire::get();
    const std::lock_guard lock(wire.lock);
    wire.seen.api_version = version;
  }
  fi_info** end = list;
  *list = nullptr;
  for (const ProviderRow* row : played()) {
    if (!fits(*row, *hints)) continue;
    for (int domain = 0; domain < 2; ++domain) {
      *end = info_of(*row, *hints, domain);
      end = &(*end)->next;
    }
  }
  return *list != nullptr ? 0 : -FI_ENODATA;
}
}
