// SPDX-License-Identifier: Apache-2.0
// A group's endpoints and connections, from nothing to the moment when all ranks may begin to send.
//
// Connections of some transports break when they are used long before the peer has its end, or arrive at nobody. So
// nothing is sent before every rank has said that all its connections stand.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proxy/agree.hpp"
#include "proxy/command_rings.hpp"
#include "proxy/group_share.hpp"
#include "transport/transport.hpp"

namespace ucclep::proxy {

struct NicConfig {
  std::shared_ptr<transport::Transport> transport;
  std::string name;  // of the NIC, for the transport; empty: its own choice
};

// A NIC as all proxy threads and groups of this rank use it.
struct Nic {
  explicit Nic(const NicConfig& config) : config(config) {}
  const NicConfig config;
  InFlight in_flight{InFlight::any_bytes, InFlight::any_messages};
};

struct GroupSpec {
  GroupShape shape;
  const CommandRings* rings = nullptr;
  Arrivals words{};                                // in memory that the host and the kernels reach
  std::vector<transport::Memory> windows;          // in the same order on all ranks
  std::vector<std::vector<uint32_t>> connections;  // by rank: the NICs of the connections to it, in an order that both
                                                   // agree on; none where no proxy is needed, or the rank is gone
  uint32_t sends = 1024;                           // operations of an endpoint that are unfinished at once, at most
  FaultSink faults = {};                           // empty: the engine's
  std::function<std::unique_ptr<CopyQueue>()> copies = {};  // for a thread; empty: NICs reach the user's windows
  // P11: what NICs have written is there for the kernels when it comes back. Empty: it is so at once.
  std::function<void()> flush = {};
};

// Hands the parts of each thread's share, connected, to `build`, which makes of them what will send; when it returns
// all ranks have done so. shape.credits may have become smaller, equally on all ranks. Some ranks may be gone
// (agree.hpp): the others connect without them.
void connect_group(GroupSpec& spec, std::vector<std::unique_ptr<Nic>>& nics, uint32_t threads, const Talk& talk,
                   const std::function<void(std::vector<GroupShare::Parts>)>& build);

}  // namespace ucclep::proxy
