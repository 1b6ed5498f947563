// SPDX-License-Identifier: Apache-2.0
#include "transport/ofi/provider.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include "base/error.hpp"

namespace ucclep::transport::ofi {
namespace {

// Fastest first. shm is not among them: it reaches this machine only.
constexpr const char* by_preference[] = {"efa", "cxi", "verbs;ofi_rxm", "tcp", "net", "tcp;ofi_rxm"};

// caps: beside writes, reads and receives.
Info hints_for(const Library& library, const std::string& provider, uint64_t caps) {
  Info hints(library.dupinfo(nullptr), {&library});
  if (hints == nullptr) fail(ucclEpOutOfMemory, "ofi: out of memory in fi_dupinfo");
  hints->caps = FI_RMA | FI_MSG | caps;
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT |
                                ((caps & FI_HMEM) != 0 ? FI_MR_HMEM : 0);
  hints->domain_attr->threading = FI_THREAD_DOMAIN;  // one thread uses an endpoint, and it has its own domain
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->cq_data_size = sizeof(uint32_t);
  if (!provider.empty()) hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

Info ask(const Library& library, const std::string& provider, uint64_t caps) {
  const Info hints = hints_for(library, provider, caps);
  fi_info* found = nullptr;
  const int code = library.getinfo(library.api_version(), nullptr, nullptr, 0, hints.get(), &found);
  if (code == 0) return Info(found, {&library});
  if (code == -FI_ENODATA) return Info(nullptr, {&library});
  fail(ucclEpSystemError, "ofi {}: fi_getinfo: {}", provider, library.words(code));
}

bool is_nic(const fi_info& info, const std::string& nic) {
  const char* device = info.nic != nullptr && info.nic->device_attr != nullptr ? info.nic->device_attr->name : nullptr;
  return nic == info.domain_attr->name || (device != nullptr && nic == device);
}

template <class Name>
std::string names_in(const fi_info* list, Name&& name) {
  std::set<std::string> names;
  for (; list != nullptr; list = list->next) names.insert(name(*list));
  std::string text;
  for (const std::string& one : names) text += (text.empty() ? "" : ", ") + one;
  return text.empty() ? "none" : text;
}

const fi_info* best(const fi_info* list) {
  for (const char* name : by_preference) {
    for (const fi_info* info = list; info != nullptr; info = info->next) {
      if (std::strcmp(info->fabric_attr->prov_name, name) == 0) return info;
    }
  }
  return nullptr;
}

const fi_info* same_domain(const fi_info* list, const fi_info& wanted) {
  for (; list != nullptr; list = list->next) {
    if (std::strcmp(list->domain_attr->name, wanted.domain_attr->name) == 0 &&
        std::strcmp(list->fabric_attr->name, wanted.fabric_attr->name) == 0) {
      return list;
    }
  }
  return nullptr;
}

}  // namespace

Info choose(const Library& library, const std::string& provider, const Config& config) {
  uint64_t caps = (config.memory & ~uint32_t{UCCLEP_MEMORY_HOST}) != 0 ? FI_HMEM : 0;
  Info list = ask(library, provider, caps);
  if (list == nullptr && caps != 0) list = ask(library, provider, caps = 0);
  const std::string nic = config.nic != nullptr ? config.nic : "";
  const fi_info* chosen = provider.empty() ? best(list.get()) : list.get();
  if (chosen == nullptr) {
    const Info all = ask(library, "", 0);
    fail(ucclEpNotSupported, "ofi: libfabric has no provider {} here that writes with immediate data; it has {}",
         provider.empty() ? "for other machines" : provider,
         names_in(all.get(), [](const fi_info& info) { return info.fabric_attr->prov_name; }));
  }
  if (!nic.empty()) {
    const char* name = chosen->fabric_attr->prov_name;
    while (chosen != nullptr && (std::strcmp(chosen->fabric_attr->prov_name, name) != 0 || !is_nic(*chosen, nic))) {
      chosen = chosen->next;
    }
    if (chosen == nullptr) {
      fail(ucclEpInvalidArgument, "ofi: the NIC {} does not exist; {} has {}", nic,
           provider.empty() ? "libfabric" : provider,
           names_in(list.get(), [](const fi_info& info) { return info.domain_attr->name; }));
    }
  }
  // cxi announces only what goes to regions that were registered for events, and has these only for who asks for them.
  const Info with_events = ask(library, chosen->fabric_attr->prov_name, caps | FI_RMA_EVENT);
  const fi_info* same = same_domain(with_events.get(), *chosen);
  return Info(library.dupinfo(same != nullptr ? same : chosen), {&library});
}

bool has(const Library& library, const std::string& provider) {
  return ask(library, provider, 0) != nullptr;
}

Duties::Duties(const fi_info& info)
    : virtual_addresses((info.domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0),
      provider_keys((info.domain_attr->mr_mode & FI_MR_PROV_KEY) != 0),
      bind_regions((info.domain_attr->mr_mode & FI_MR_ENDPOINT) != 0),
      device_memory((info.caps & FI_HMEM) != 0),
      region_events((info.caps & FI_RMA_EVENT) != 0),
      post_receives((info.mode & FI_RX_CQ_DATA) != 0),
      key_bytes(info.domain_attr->mr_key_size) {}

}  // namespace ucclep::transport::ofi
