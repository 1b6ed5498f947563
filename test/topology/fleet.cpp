// SPDX-License-Identifier: Apache-2.0
#include "fleet.hpp"

#include "topology/words.hpp"

namespace ucclep::test {

using namespace topology;

NodeId node_id(const std::string& boot_id, uint64_t network_namespace) {
  NodeId id;
  boot_id.copy(id.boot_id.data(), id.boot_id.size() - 1);
  id.network_namespace = network_namespace;
  return id;
}

std::vector<RankFacts> ranks_on(const std::shared_ptr<const Machine>& machine, int count, const std::string& boot_id) {
  std::vector<RankFacts> ranks;
  const auto gpus = static_cast<int>(machine->gpus.size());
  for (int i = 0; i < count; ++i) {
    RankFacts facts;
    facts.node = node_id(boot_id);
    facts.machine = machine;
    facts.gpu = gpus == 0 ? -1 : i % gpus;
    ranks.push_back(facts);
  }
  return ranks;
}

Machine machine_with(const std::vector<int>& switches_of_gpus, const std::vector<int>& switches_of_nics) {
  Machine machine;
  machine.name = "drawn";
  for (int node = 0; node < 2; ++node) {
    NumaNode numa{node, {}};
    for (int core = 16 * node; core < 16 * node + 16; ++core) numa.cores.push_back({core, core + 32});
    machine.numa_nodes.push_back(numa);
  }
  const auto behind = [](int number, size_t device) {
    const auto bus = static_cast<uint8_t>(16 * number);
    return PciPlace{{0, static_cast<uint8_t>(bus + 1 + device), 0, 0}, number < 4 ? 0 : 1, number, {{0, bus, 0, 0}}};
  };
  for (size_t i = 0; i < switches_of_gpus.size(); ++i) {
    machine.gpus.push_back({behind(switches_of_gpus[i], i), "NVIDIA", "GPU", {"nvlink", "0", ""}});
  }
  for (size_t i = 0; i < switches_of_nics.size(); ++i) {
    machine.nics.push_back({behind(switches_of_nics[i], 8 + i), "nic" + std::to_string(i), {}, true, true, 400});
  }
  return machine;
}

std::string summary(const std::vector<RankFacts>& ranks, const Plan& plan, int rank) {
  const RankPlan& mine = plan.ranks[static_cast<size_t>(rank)];
  std::vector<std::string> cpus;
  for (const Proxy& proxy : mine.proxies) cpus.push_back(std::to_string(proxy.cpu));
  return std::to_string(mine.node) + " " + std::to_string(mine.local_rank) + " " + std::to_string(mine.domain) + ": " +
         nics_of_ranks(ranks, plan)[static_cast<size_t>(rank)] + " | " + join(cpus, " ");
}

std::vector<std::string> nics_of_ranks(const std::vector<RankFacts>& ranks, const Plan& plan) {
  std::vector<std::string> lists;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<std::string> names;
    for (const NicUse& use : plan.ranks[rank].nics)
      names.push_back(ranks[rank].machine->nics[static_cast<size_t>(use.nic)].name);
    lists.push_back(join(names, " "));
  }
  return lists;
}

}  // namespace ucclep::test
