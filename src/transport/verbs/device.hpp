// SPDX-License-Identifier: Apache-2.0
// The NIC that an endpoint uses: an open device, its port and how the port is addressed.
#pragma once
#include <string>

#include "transport/transport.hpp"
#include "transport/verbs/library.hpp"
#include "transport/verbs/nic_table.hpp"

namespace ucclep::transport::verbs {

struct Device {
  std::string name;
  Context context;
  ibv_device_attr attributes{};
  uint8_t port = 0;  // from 1 on
  ibv_port_attr port_attributes{};
  ibv_gid gid{};
  uint8_t gid_index = 0;
  uint32_t gid_type = 0;  // IBV_GID_TYPE_*, of Ethernet
  const NicFamily* family = nullptr;

  bool ethernet() const { return port_attributes.link_layer == IBV_LINK_LAYER_ETHERNET; }
};

// name: empty for the first device with an active port. Throws Error: no such NIC (with those that are there), none of
// its ports is active, no NIC at all.
Device open_device(const Library& library, const std::string& name);

// What its port speaks; ports that speak the same are taken to reach each other.
std::string network_of(const Library& library, const Device& device);

// How much of what config asks for the device bears.
struct Grant {
  uint32_t sends, receives;
  uint32_t depth;            // operations that one connection has begun
  uint32_t receives_a_peer;  // 0: they are shared
  uint32_t completions;
};
Grant grant(const Device& device, const Config& config);

// Bits of UCCLEP_MEMORY_*.
uint32_t memory_kinds(const Library& library, const NicFamily& family);

}  // namespace ucclep::transport::verbs
