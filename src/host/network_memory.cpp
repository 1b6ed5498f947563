// SPDX-License-Identifier: Apache-2.0
#include "host/network_memory.hpp"

#include <utility>

#include "base/log.hpp"
#include "host/comm.hpp"

namespace ucclep {
namespace {

using Way = NetworkMemory::Way;

constexpr size_t trial_bytes = 64 * 1024;

// What one rank says to the others.
struct Ability {
  bool insists = false;
  std::string reason;  // why it cannot have GPU memory; empty: it can
};

std::string packed(const Ability& ability) {
  return (ability.insists ? "1" : "0") + ability.reason;
}
Ability unpacked(const std::string& text) {
  if (text.empty()) return {};
  return {text.front() == '1', text.substr(1)};
}

uint32_t kind_of(const DeviceTraits& traits, Way way) {
  if (way == Way::dma_buf) return UCCLEP_MEMORY_DMABUF;
  return traits.kind == UCCLEP_DEVICE_CUDA ? UCCLEP_MEMORY_CUDA : UCCLEP_MEMORY_HIP;
}

// Peers of the domain read what came for them at their relay, and whatever lies in a user's window.
NicWritesReach readers_of(const ucclEpComm& comm) {
  const topology::Plan& plan = comm.wiring.plan;
  const auto domain = static_cast<size_t>(comm.wiring.of(comm.rank()).domain);
  return plan.domains[domain].ranks.size() > 1 ? NicWritesReach::all_devices : NicWritesReach::owner;
}

// Empty: it works. Else why not.
std::string try_way(const ucclEpComm& comm, const std::vector<proxy::NicConfig>& nics, Way way) {
  Device& device = *comm.device;
  const uint32_t kind = kind_of(comm.traits, way);
  const NetworkMemory where{way, {}, {}};
  try {
    const std::unique_ptr<SharedMemory> trial = device.share(trial_bytes);
    const NicRegion region = nic_region(device, where, *trial);
    for (const proxy::NicConfig& nic : nics) {
      const auto endpoint = nic.transport->open({.nic = nic.name.c_str(),
                                                 .peers = 1,
                                                 .sends = 16,
                                                 .receives = 16,
                                                 .timeout_ms = static_cast<uint32_t>(comm.timeout_ms()),
                                                 .memory = UCCLEP_MEMORY_HOST | kind});
      if ((endpoint->traits().memory & kind) == 0) {
        return fmt::format("the transport {} takes none", comm.wiring.transport(comm.transport));
      }
      transport::Key key{};
      endpoint->deregister_region(endpoint->register_region(region.memory, &key));
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The first way that works; else the reason of each.
Way find_way(const ucclEpComm& comm, const NicFacts& facts, std::string& reason) {
  std::vector<proxy::NicConfig> nics;
  try {
    nics = nics_of(comm);
  } catch (const Error& error) {
    reason = error.what();
    return Way::host;
  }
  const auto attempt = [&](bool offered, Way way, const char* name) {
    const std::string why = offered ? try_way(comm, nics, way) : "the GPU's driver offers none";
    if (!why.empty()) reason += fmt::format("{}{}: {}", reason.empty() ? "" : "; ", name, why);
    return why.empty();
  };
  if (attempt(facts.dma_buf, Way::dma_buf, "dma-buf")) return Way::dma_buf;
  if (attempt(facts.by_address, Way::by_address, "peer memory")) return Way::by_address;
  return Way::host;
}

// What this rank can have; a reason if that is host memory only.
NetworkMemory explore(const ucclEpComm& comm, std::string& reason) {
  const NetworkMemory on_host{};
  const NicAccess* access = comm.device->nic_access();
  if (comm.config.network_memory == Config::NetworkMemory::host) {
    reason = "UCCLEP_NETWORK_MEMORY=host";
  } else if (access == nullptr) {
    reason = "its device is the host";
  } else if (!access->facts().lacks.empty()) {
    reason = access->facts().lacks;
  } else {
    const NicWritesReach readers = readers_of(comm);
    const FlushRule rule = flush_rule(access->facts().writes, readers);
    if (rule == FlushRule::unknown) {
      reason =
          "nothing makes a NIC's writes into its GPU's memory visible here: neither order, nor a flush of the driver's";
      return on_host;
    }
    const Way way = find_way(comm, access->facts(), reason);
    if (way != Way::host) return {way, readers, rule};
  }
  return on_host;
}

}  // namespace

std::string NetworkMemory::text() const {
  if (way == Way::host) return "host memory";
  return fmt::format("the GPU's memory, by {}, {}", way == Way::dma_buf ? "dma-buf" : "its addresses",
                     flush == FlushRule::nothing ? "where writes of NICs need no flush" : "flushed by its driver");
}

NetworkMemory choose_network_memory(const ucclEpComm& comm) {
  Ability own{comm.config.network_memory == Config::NetworkMemory::device, ""};
  NetworkMemory can = explore(comm, own.reason);
  if (can.in_device()) own.reason.clear();
  const std::vector<std::string> all = comm.bootstrap->collect(packed(own), comm.deadline());
  int cannot = -1, insists = -1;
  std::string why;
  for (int rank = comm.nranks() - 1; rank >= 0; --rank) {
    const Ability ability = unpacked(all[static_cast<size_t>(rank)]);
    if (ability.insists) insists = rank;
    if (ability.reason.empty()) continue;
    cannot = rank;
    why = ability.reason;
  }
  if (cannot >= 0 && insists >= 0) {
    fail(ucclEpNotSupported, "UCCLEP_NETWORK_MEMORY=device of rank {}: rank {} cannot: {}", insists, cannot, why);
  }
  if (cannot >= 0) can = {};
  log::info("network", "NICs read and write {}{}", can.text(),
            cannot < 0 ? "" : fmt::format(" only (rank {}: {})", cannot, why));
  return can;
}

NicRegion nic_region(Device& device, const NetworkMemory& where, const SharedMemory& memory) {
  NicRegion region{{UCCLEP_MEMORY_HOST, 0, memory.host_data(), memory.bytes(), memory.fd(), memory.ticket().offset},
                   {}};
  if (!where.in_device() || memory.host_data() != nullptr) return region;
  transport::Memory& given = region.memory;
  given = {kind_of(device.traits(), where.way), device.traits().index, memory.data(), memory.bytes(), -1, 0};
  if (where.way == Way::by_address) return region;
  DmaBuf made = device.nic_access()->dma_buf(memory.data(), memory.bytes());
  region.dma_buf = std::move(made.fd);
  given.fd = region.dma_buf.get();
  given.fd_offset = made.offset;
  return region;
}

std::function<void()> flush_of(Device& device, const NetworkMemory& where) {
  if (where.flush != FlushRule::by_driver) return {};
  return [access = device.nic_access(), readers = where.readers] { access->flush(readers); };
}

}  // namespace ucclep
