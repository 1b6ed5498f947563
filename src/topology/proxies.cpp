// SPDX-License-Identifier: Apache-2.0
#include "topology/proxies.hpp"

#include <algorithm>
#include <tuple>

namespace ucclep::topology {
namespace {

constexpr size_t max_proxies = 4;

size_t cores_of(const Machine& machine) {
  size_t cores = 0;
  for (const NumaNode& node : machine.numa_nodes) cores += node.cores.size();
  return cores;
}

size_t proxies_of(const RankFacts& facts, size_t ranks_of_machine) {
  if (facts.proxy_threads > 0) return static_cast<size_t>(facts.proxy_threads);
  return std::clamp<size_t>(cores_of(*facts.machine) / ranks_of_machine / 2, 1, max_proxies);
}

// NICs and threads deal out in turn, whichever there are more of.
std::vector<int> nics_of(size_t proxy, size_t proxies, size_t nics) {
  if (nics == 0) return {};
  std::vector<int> mine;
  if (nics <= proxies) mine.push_back(static_cast<int>(proxy % nics));
  for (size_t nic = proxy; nics > proxies && nic < nics; nic += proxies) mine.push_back(static_cast<int>(nic));
  return mine;
}

}  // namespace

int ProxyPlanner::take_cpu(const Machine& machine, int numa) {
  int best_cpu = 0;
  std::tuple<int, int, int> best{INT32_MAX, 0, 0};  // threads of the core, of the CPU, and the later the better
  const auto count = static_cast<int>(machine.numa_nodes.size());
  for (int node = 0, place = 0; node < count; ++node) {
    if (numa >= 0 && node != numa) continue;
    for (const std::vector<int>& core : machine.numa_nodes[static_cast<size_t>(node)].cores) {
      int of_core = 0;
      for (const int cpu : core) of_core += threads_of_cpu_[cpu];
      --place;
      for (const int cpu : core) {
        const std::tuple rank{of_core, threads_of_cpu_[cpu], place};
        if (rank < best) std::tie(best, best_cpu) = std::pair(rank, cpu);
      }
    }
  }
  ++threads_of_cpu_[best_cpu];
  return best_cpu;
}

std::vector<Proxy> ProxyPlanner::plan(const RankFacts& facts, const std::vector<NicUse>& nics) {
  const Machine& machine = *facts.machine;
  // A rank that is near nothing gets the NUMA node of its turn.
  const size_t numa_nodes = std::max<size_t>(machine.numa_nodes.size(), 1);
  int own_numa = static_cast<int>(planned_++ * numa_nodes / ranks_ % numa_nodes);
  if (facts.gpu >= 0) own_numa = machine.gpus[static_cast<size_t>(facts.gpu)].place.numa;
  std::vector<Proxy> proxies(proxies_of(facts, ranks_));
  for (size_t i = 0; i < proxies.size(); ++i) {
    proxies[i].nics = nics_of(i, proxies.size(), nics.size());
    int numa = own_numa;
    if (!proxies[i].nics.empty()) {
      const NicUse& first = nics[static_cast<size_t>(proxies[i].nics.front())];
      const int of_nic = machine.nics[static_cast<size_t>(first.nic)].place.numa;
      if (of_nic >= 0) numa = of_nic;
    }
    proxies[i].cpu = take_cpu(machine, numa);
  }
  return proxies;
}

}  // namespace ucclep::topology
