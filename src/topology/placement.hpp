// SPDX-License-Identifier: Apache-2.0
// What a rank says of itself, and what a plan gives it. Plain data.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/node.hpp"
#include "topology/topology.hpp"

namespace ucclep::topology {

// What a rank tells the others. Ranks of one machine may see different parts of it (containers, cgroups).
struct RankFacts {
  NodeId node;
  std::shared_ptr<const Machine> machine;
  int gpu = -1;                   // index in machine->gpus; -1: the rank computes on the CPU
  std::vector<std::string> nics;  // the only ones that it may use; empty: the machine's best
  int ranks_per_node = 0;         // as in ucclEpCommConfig_t; 0: as the machines are
  int ranks_per_domain = 0;       // the same
  int proxy_threads = 0;          // 0: two for each four cores that it has, at most four
  unsigned whole_bytes = 16;      // of a store that arrive whole (P15), if the rank computes on the CPU
};

inline const RankFacts& facts_of(const std::vector<RankFacts>& ranks, int rank) {
  return ranks[static_cast<size_t>(rank)];
}

struct NicUse {
  int nic = 0;  // index in the rank's machine->nics
  int rail = 0;
  Path path = Path::machine;  // from the rank's GPU, if it has one
};

struct Proxy {
  int cpu = 0;            // to which the thread is pinned
  std::vector<int> nics;  // that it drives: indexes in RankPlan::nics
};

struct RankPlan {
  int node = 0, local_rank = 0, domain = 0;
  std::vector<NicUse> nics;  // by rail; one may serve several ranks
  std::vector<Proxy> proxies;
};

// Ranks that reach each other's memory without a NIC.
struct Domain {
  std::string kind;  // the slowest way between two of them: "nvlink", "xgmi", "pcie", "memory"
  std::vector<int> ranks;
  unsigned whole_bytes = 0;  // of a store that arrive whole between any two of them (P15)
};

// A kernel that was booted once. Virtual nodes and containers share one, and with it the NICs.
struct MachinePlan {
  std::vector<int> ranks;
  std::vector<std::string> rails;  // names of NICs: NIC i of one machine talks to NIC i of every other
};

struct Plan {
  std::vector<MachinePlan> machines;
  std::vector<std::vector<int>> nodes;  // their ranks
  std::vector<Domain> domains;
  std::vector<RankPlan> ranks;

  unsigned whole_bytes() const { return std::ranges::min(domains, {}, &Domain::whole_bytes).whole_bytes; }
};

}  // namespace ucclep::topology
