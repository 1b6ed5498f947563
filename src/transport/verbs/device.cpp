// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.hpp"

namespace ucclep::transport::verbs {
namespace {

class DeviceList {
 public:
  explicit DeviceList(const Library& library) : library_(library) {
    int count = 0;
    // A kernel without RDMA is an error of libibverbs; here it is a machine without devices.
    list_ = library.get_device_list(&count);
    devices_ = {list_, list_ != nullptr ? static_cast<size_t>(count) : 0};
  }
  ~DeviceList() {
    if (list_ != nullptr) library_.free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  auto begin() const { return devices_.begin(); }
  auto end() const { return devices_.end(); }
  std::string names() const {
    std::string text;
    for (ibv_device* device : devices_)
      text += (text.empty() ? "" : ", ") + std::string(library_.get_device_name(device));
    return text.empty() ? "none" : text;
  }

 private:
  const Library& library_;
  ibv_device** list_;
  std::span<ibv_device*> devices_;
};

// iWARP has no writes with immediate data.
bool speaks_rc(const ibv_device& device) {
  return device.transport_type == IBV_TRANSPORT_IB;
}

bool maps_ipv4(const ibv_gid& gid) {
  constexpr std::array<uint8_t, 12> head{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(head.begin(), head.end(), gid.raw);
}

bool is_link_local(const ibv_gid& gid) {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

// RoCE v2 is routed, v1 is not; an IPv4 address is what networks of RoCE are set up with. 0: unusable.
int rank_of(const ibv_gid_entry& entry) {
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) return 1;
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return 0;
  if (maps_ipv4(entry.gid)) return 4;
  return is_link_local(entry.gid) ? 2 : 3;
}

bool choose_gid(const Library& library, Device& device) {
  int best = 0;
  for (int index = 0; index < std::min(device.port_attributes.gid_tbl_len, 256); ++index) {
    ibv_gid_entry entry{};
    if (library.query_gid_ex(device.context.get(), device.port, static_cast<uint32_t>(index), &entry, 0,
                             sizeof(entry)) != 0) {
      continue;
    }
    if (const int rank = rank_of(entry); rank > best) {
      best = rank;
      device.gid = entry.gid;
      device.gid_index = static_cast<uint8_t>(index);
      device.gid_type = entry.gid_type;
    }
  }
  return best > 0;
}

bool choose_port(const Library& library, Device& device) {
  for (uint8_t port = 1; port <= device.attributes.phys_port_cnt; ++port) {
    device.port = port;
    device.port_attributes = {};
    // The symbol takes the first fields of the struct that the inline function of the same name takes.
    auto* attributes = reinterpret_cast<_compat_ibv_port_attr*>(&device.port_attributes);
    if (library.query_port(device.context.get(), port, attributes) != 0) continue;
    if (device.port_attributes.state != IBV_PORT_ACTIVE) continue;
    if (!device.ethernet() || choose_gid(library, device)) return true;
  }
  return false;
}

// Null context: it cannot be used.
Device try_device(const Library& library, ibv_device* found) {
  Device device;
  device.name = library.get_device_name(found);
  device.context = Context(library.open_device(found), {&library});
  const bool usable = device.context != nullptr && speaks_rc(*found) &&
                      library.query_device(device.context.get(), &device.attributes) == 0 &&
                      choose_port(library, device);
  if (!usable) device.context.reset();
  device.family = &family_of(device.attributes.vendor_id);
  return device;
}

uint32_t limit(uint32_t wanted, int max) {
  return max > 0 ? std::min(wanted, static_cast<uint32_t>(max)) : wanted;
}

}  // namespace

Device open_device(const Library& library, const std::string& name) {
  const DeviceList list(library);
  bool found = false;
  for (ibv_device* one : list) {
    if (!name.empty() && name != library.get_device_name(one)) continue;
    found = true;
    if (Device device = try_device(library, one); device.context != nullptr) return device;
  }
  if (!name.empty() && !found) {
    fail(ucclEpInvalidArgument, "verbs: the NIC {} does not exist; this machine has {}", name, list.names());
  }
  if (!found) fail(ucclEpNotSupported, "verbs: libibverbs finds no NIC on this machine");
  fail(ucclEpNotSupported, "verbs: {} has no active InfiniBand or RoCE port with an address", list.names());
}

std::string network_of(const Library& library, const Device& device) {
  if (device.ethernet()) {
    if (device.gid_type == IBV_GID_TYPE_ROCE_V1) return "RoCE v1";
    if (maps_ipv4(device.gid)) return "RoCE v2 by IPv4";
    return is_link_local(device.gid) ? "RoCE v2 by link-local addresses" : "RoCE v2 by IPv6";
  }
  ibv_gid_entry entry{};
  if (library.query_gid_ex(device.context.get(), device.port, 0, &entry, 0, sizeof(entry)) != 0) return "InfiniBand";
  std::string subnet;
  for (const uint8_t byte : std::span(entry.gid.raw).first(8)) subnet += fmt::format("{:02x}", byte);
  return "InfiniBand, subnet " + subnet;
}

Grant grant(const Device& device, const Config& config) {
  const ibv_device_attr& limits = device.attributes;
  Grant granted{};
  granted.receives = limit(config.receives, limits.max_cqe / 2);
  if (limits.max_srq > 0) {
    granted.receives = limit(granted.receives, limits.max_srq_wr);
  } else {
    granted.receives_a_peer = limit(std::max(granted.receives / config.peers, 1u), limits.max_qp_wr);
    granted.receives = granted.receives_a_peer * config.peers;
  }
  // Twice: a connection that broke can have left as many again behind.
  const int room = std::max(limits.max_cqe - static_cast<int>(granted.receives), 2);
  granted.sends = limit(config.sends, room / 2);
  granted.depth = limit(granted.sends, limits.max_qp_wr);
  granted.completions = 2 * granted.sends + granted.receives;
  return granted;
}

uint32_t memory_kinds(const Library& library, const NicFamily& family) {
  uint32_t kinds = UCCLEP_MEMORY_HOST;
  if (family.dma_buf && library.reg_dmabuf_mr != nullptr) kinds |= UCCLEP_MEMORY_DMABUF;
  // Drivers of GPUs give their memory to NICs through modules of their own, which have had several names: whether there
  // is one a registration shows.
  if (family.peer_memory) kinds |= UCCLEP_MEMORY_CUDA | UCCLEP_MEMORY_HIP;
  return kinds;
}

}  // namespace ucclep::transport::verbs
