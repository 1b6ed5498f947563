// SPDX-License-Identifier: Apache-2.0
#include "host/network/network_memory.hpp"

#include <utility>

#include "base/log.hpp"
#include "bootstrap/agreement.hpp"
#include "host/context/communicator.hpp"

namespace ucclep {
namespace {

using Way = NetworkMemory::Way;

constexpr size_t trial_bytes = 64 * 1024;

// What all ranks say of GPU memory.
struct Verdict {
  int rank = -1;  // the first that cannot have it
  std::string reason;

  bool good() const { return rank < 0; }
};

// Collective. reason: why this rank cannot; empty: it can. Error: some cannot, and some rank insists.
Verdict ask_all(const ucclEpComm& comm, const std::string& reason, Deadline deadline) {
  const bool insists = comm.config.network_memory == Config::NetworkMemory::device;
  Verdict verdict;
  int insisting = -1;
  const std::vector<std::string> all = comm.bootstrap->collect((insists ? "1" : "0") + reason, deadline);
  for (int rank = comm.nranks() - 1; rank >= 0; --rank) {
    const std::string& said = all[static_cast<size_t>(rank)];
    if (said.starts_with('1')) insisting = rank;
    if (said.size() > 1) verdict = {rank, said.substr(1)};
  }
  if (!verdict.good() && insisting >= 0) {
    fail(ucclEpNotSupported,
         "rank {} has set UCCLEP_NETWORK_MEMORY=device, but NICs cannot write to the GPU memory of rank {}: {}",
         insisting, verdict.rank, verdict.reason);
  }
  return verdict;
}

uint32_t kind_of(const DeviceTraits& traits, Way way) {
  if (way == Way::dma_buf) return UCCLEP_MEMORY_DMABUF;
  return traits.kind == UCCLEP_DEVICE_CUDA ? UCCLEP_MEMORY_CUDA : UCCLEP_MEMORY_HIP;
}

// Peers of the domain read what came for them at their relay, and whatever lies in a user's window.
NicWritesReach readers_of(const ucclEpComm& comm) {
  const topology::Plan& plan = comm.topology.plan;
  const auto domain = static_cast<size_t>(comm.topology.of(comm.rank()).domain);
  return plan.domains[domain].ranks.size() > 1 ? NicWritesReach::all_devices : NicWritesReach::owner;
}

// Whether all NICs get hold of it. Empty: they do. Else why not.
std::string why_not(const ucclEpComm& comm, const NetworkMemory& where, const SharedMemory& memory) {
  const uint32_t kind = kind_of(comm.traits, where.way);
  try {
    const NicRegion region = nic_region(*comm.device, where, memory);
    for (const proxy::NicConfig& nic : nics_of(comm)) {
      const auto endpoint = nic.transport->open({.nic = nic.name.c_str(),
                                                 .peers = 1,
                                                 .sends = 16,
                                                 .receives = 16,
                                                 .timeout_ms = static_cast<uint32_t>(comm.timeout_ms()),
                                                 .memory = UCCLEP_MEMORY_HOST | kind});
      if ((endpoint->traits().memory & kind) == 0) {
        return fmt::format("the transport {} does not accept this memory", comm.transport);
      }
      transport::Key key{};
      endpoint->deregister_region(endpoint->register_region(region.memory, &key));
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string try_way(const ucclEpComm& comm, Way way) {
  try {
    return why_not(comm, {way, {}, {}}, *comm.device->share(trial_bytes));
  } catch (const Error& error) {
    return error.what();
  }
}

// The first way that works; else the reason of each.
Way find_way(const ucclEpComm& comm, const NicFacts& facts, std::string& reason) {
  const auto attempt = [&](bool offered, Way way, const char* name) {
    const std::string why = offered ? try_way(comm, way) : "the GPU's driver does not offer it";
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
    reason = "its device is the host device";
  } else if (!access->facts().lacks.empty()) {
    reason = access->facts().lacks;
  } else {
    const NicWritesReach readers = readers_of(comm);
    const FlushRule rule = flush_rule(access->facts().writes, readers);
    if (rule == FlushRule::unknown) {
      reason =
          "a NIC's writes to its GPU's memory cannot be made visible: the platform does not order them, and the driver "
          "has no flush";
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

NetworkMemory choose_network_memory(const ucclEpComm& comm, Deadline deadline) {
  std::string reason;
  NetworkMemory can = explore(comm, reason);
  if (can.in_device()) reason.clear();
  const Verdict all = ask_all(comm, reason, deadline);
  if (!all.good()) can = {};
  log::info("network", "NICs read and write {}{}", can.text(),
            all.good() ? "" : fmt::format(" only (rank {}: {})", all.rank, all.reason));
  return can;
}

NetworkWindow share_network_window(const ucclEpComm& comm, const NetworkMemory& memory, uint64_t bytes,
                                   Deadline deadline) {
  NetworkWindow window{memory, nullptr};
  const auto share = [&](auto&& allocate) {
    Agreement agreement("ucclEpGroupCreate");
    agreement.attempt([&] { window.memory = allocate(); });
    agreement.settle(*comm.bootstrap, deadline);
  };
  if (window.where.in_device()) {
    share([&] { return comm.device->share(bytes); });
    const Verdict all = ask_all(comm, why_not(comm, window.where, *window.memory), deadline);
    if (all.good()) return window;
    log::warn("network", "a group's window of {} bytes is in host memory (rank {}: {})", bytes, all.rank, all.reason);
    window = {};
  }
  share([&] { return comm.device->share_pinned(bytes); });
  return window;
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

std::vector<proxy::NicConfig> nics_of(const ucclEpComm& comm) {
  const ExchangedTopology& topology = comm.topology;
  const topology::RankPlan& own = topology.of(comm.rank());
  const std::shared_ptr<transport::Transport> transport = transport::make_transport(comm.transport);
  if (!transport->takes_nics() || own.nics.empty()) return {{transport, ""}};
  const topology::Machine& machine = *topology.ranks[static_cast<size_t>(comm.rank())].machine;
  std::vector<proxy::NicConfig> nics;
  nics.reserve(own.nics.size());
  for (const topology::NicUse& use : own.nics) {
    nics.push_back({transport, machine.nics[static_cast<size_t>(use.nic)].name});
  }
  return nics;
}

}  // namespace ucclep
