// SPDX-License-Identifier: Apache-2.0
#include "host/context/topology_exchange.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/node.hpp"
#include "bootstrap/bootstrap.hpp"
#include "host/context/transport_choice.hpp"
#include "topology/discover.hpp"
#include "topology/driver_gpus.hpp"
#include "topology/json.hpp"
#include "topology/nic_list.hpp"
#include "topology/words.hpp"
#include "transport/transport.hpp"

namespace ucclep {
namespace {

using topology::Machine;
using topology::RankFacts;

// Tens of milliseconds, for what does not change while a process lives.
const Machine& explored_machine() {
  constinit static MadeOnce<Machine> machine;
  return machine.get([] {
    try {
      // hwloc would say on standard error what it misses.
      if (access("/sys/devices/system/cpu", F_OK) != 0)
        fail(ucclEpNotSupported, "the folder /sys/devices/system/cpu does not exist");
      return topology::discover();
    } catch (const Error& error) {
      log::info("topology", "the topology of this machine has only CPUs and names of NICs: {}", error.what());
      return topology::discover_without_hwloc();
    }
  });
}

Machine machine_of(const Config& config) {
  if (config.topo_file.empty()) return explored_machine();
  try {
    return topology::read_topology_file(config.topo_file);
  } catch (const Error& error) {
    fail(error.code(), "UCCLEP_TOPO_FILE: {}", error.what());
  }
}

// Adds what the driver knows of GPUs, and returns the index of the one that this rank uses.
int add_gpus(const DeviceTraits& traits, Machine& machine) {
  if (traits.kind == UCCLEP_DEVICE_HOST) return -1;
  const gpu::DriverFacts& facts = traits.kind == UCCLEP_DEVICE_CUDA ? gpu::cuda_facts : gpu::hip_facts;
  const topology::PciAddress own = topology::address_of(traits.place);
  try {
    topology::add_driver_gpus(topology::driver_gpus(gpu::Driver::get(facts)), machine);
  } catch (const Error& error) {
    log::info("topology", "cannot read the links between GPUs: {}", error.what());
    topology::add_driver_gpus({{own, facts.maker, traits.name, {}}}, machine);
  }
  return topology::index_of_gpu(machine, own);
}

std::vector<std::string> asked_nics(const Config& config, const ucclEpCommConfig_t& asked, const Machine& machine) {
  std::vector<std::string> names = config.nics;
  const char* owner = "UCCLEP_NICS";
  if (names.empty() && asked.nics != nullptr) {
    owner = "config.nics";
    const auto parsed = env::parse_names(asked.nics);
    if (!parsed) {
      fail(ucclEpInvalidArgument, "config.nics is \"{}\", expected names separated by commas, without blanks",
           asked.nics);
    }
    names = *parsed;
  }
  topology::nics_by_name(machine, names, owner);
  return names;
}

// Machines are long texts, and often alike: each is sent once, by the lowest of the ranks that see the same machine.
// Where a machine has the name of its host, the ranks know it already.
std::vector<std::shared_ptr<const Machine>> exchange_machines(Bootstrap& bootstrap, Machine own, Deadline deadline) {
  const auto self = static_cast<size_t>(bootstrap.rank());
  if (own.name == host_name()) own.name.clear();
  const std::string text = pack(own);
  const std::vector<uint64_t> hashes = bootstrap.allgather<uint64_t>(std::hash<std::string>{}(text), deadline);
  const auto sender = [&](size_t rank) {
    return static_cast<size_t>(std::ranges::find(hashes, hashes[rank]) - hashes.begin());
  };
  const std::vector<std::string> texts = bootstrap.collect(sender(self) == self ? text : "", deadline);
  std::map<std::pair<size_t, std::string>, std::shared_ptr<const Machine>> known;
  std::vector<std::shared_ptr<const Machine>> machines;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string& host = bootstrap.host_name(static_cast<int>(rank));
    auto& machine = known[{sender(rank), host}];
    if (machine == nullptr) {
      Machine parsed = topology::parse_machine(texts[sender(rank)]);
      if (parsed.name.empty()) parsed.name = host;
      machine = std::make_shared<const Machine>(std::move(parsed));
    }
    machines.push_back(machine);
  }
  return machines;
}

}  // namespace

std::vector<int> ExchangedTopology::sharers_of_gpu(int rank) const {
  const auto place = [&](const RankFacts& facts) {
    return std::pair(facts.node, facts.machine->gpus[static_cast<size_t>(facts.gpu)].place.address);
  };
  const RankFacts& own = ranks[static_cast<size_t>(rank)];
  if (own.gpu < 0) return {rank};
  std::vector<int> sharers;
  for (size_t other = 0; other < ranks.size(); ++other) {
    if (ranks[other].gpu >= 0 && place(ranks[other]) == place(own)) sharers.push_back(static_cast<int>(other));
  }
  return sharers;
}

int ExchangedTopology::numa_node_of_gpu(int rank) const {
  const RankFacts& facts = ranks[static_cast<size_t>(rank)];
  const int index = facts.gpu < 0 ? -1 : facts.machine->gpus[static_cast<size_t>(facts.gpu)].place.numa;
  return index < 0 ? -1 : facts.machine->numa_nodes[static_cast<size_t>(index)].number;
}

std::string ExchangedTopology::nic_names(int rank) const {
  std::vector<std::string> names;
  const Machine& machine = *ranks[static_cast<size_t>(rank)].machine;
  for (const topology::NicUse& use : of(rank).nics) names.push_back(machine.nics[static_cast<size_t>(use.nic)].name);
  return topology::join(names, ",");
}

std::string asked_transport(const Config& config, const ucclEpCommConfig_t& asked) {
  const bool from_environment = !config.transport.empty();
  if (!from_environment && asked.transport == nullptr) return {};
  std::string name = from_environment ? config.transport : asked.transport;
  try {
    transport::make_transport(name);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", from_environment ? "UCCLEP_TRANSPORT" : "config.transport", error.what());
  }
  return name;
}

RankFacts facts_of_this_rank(const Config& config, const ucclEpCommConfig_t& asked, const DeviceTraits& traits) {
  Machine machine = machine_of(config);
  RankFacts facts;
  facts.gpu = add_gpus(traits, machine);
  facts.nics = asked_nics(config, asked, machine);
  facts.ranks_per_node = asked.ranks_per_node;
  facts.ranks_per_domain = asked.ranks_per_domain;
  facts.proxy_threads = asked.proxy_threads;
  facts.whole_bytes = traits.whole_bytes;
  facts.machine = std::make_shared<const Machine>(std::move(machine));
  return facts;
}

ExchangedTopology exchange_topology(Bootstrap& bootstrap, const RankFacts& own, const std::vector<int>& node_sizes,
                                    Deadline deadline) {
  const auto machines = exchange_machines(bootstrap, *own.machine, deadline);
  ExchangedTopology topology;
  for (const std::string& text : bootstrap.collect(topology::pack(own), deadline)) {
    const size_t rank = topology.ranks.size();
    RankFacts& facts = topology.ranks.emplace_back(topology::parse_facts(text));
    facts.node = bootstrap.node(static_cast<int>(rank));
    facts.machine = machines[rank];
  }
  topology.plan = topology::make_plan(topology.ranks, node_sizes);
  return topology;
}

std::string agreed_transport(Bootstrap& bootstrap, const ExchangedTopology& topology, const std::string& asked,
                             const RankFacts& own, Deadline deadline) {
  if (topology.plan.domains.size() == 1) return {};
  if (!asked.empty()) return asked;
  if (topology.plan.machines.size() == 1) return "loopback";
  const std::vector<transport::Offer> mine = transport::offers(own.nics.empty() ? "" : own.nics.front());
  std::vector<RankOffers> ranks;
  for (const std::string& text : bootstrap.collect(pack(mine), deadline)) {
    ranks.push_back({bootstrap.host_name(static_cast<int>(ranks.size())), parse_offers(text)});
  }
  const TransportChoice choice = choose_transport(ranks);
  if (choice.chosen.transport.empty()) {
    fail(ucclEpNotSupported,
         "no transport connects all ranks, which are on {} machines (not usable: {}): set UCCLEP_TRANSPORT to one of "
         "{}, or to a plugin",
         topology.plan.machines.size(), choice.passed_over, transport::built_in_transports());
  }
  const std::string text = fmt::format("the transport {} connects the ranks of {} machines ({}){}",
                                       choice.chosen.transport, topology.plan.machines.size(), choice.chosen.network,
                                       choice.passed_over.empty() ? "" : ", not usable: " + choice.passed_over);
  if (choice.chosen.transport == "ofi:tcp" && bootstrap.rank() == 0) {
    log::warn("transport", "{}; TCP is slow: set UCCLEP_TRANSPORT to use another transport", text);
  } else {
    log::info("transport", "{}", text);
  }
  return choice.chosen.transport;
}

}  // namespace ucclep
