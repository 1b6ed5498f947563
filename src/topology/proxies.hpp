// SPDX-License-Identifier: Apache-2.0
// The proxy threads of the ranks of one machine, and the CPUs to which they are pinned.
#pragma once
#include <map>
#include <vector>

#include "topology/placement.hpp"

namespace ucclep::topology {

class ProxyPlanner {
 public:
  explicit ProxyPlanner(size_t ranks_of_machine) : ranks_(ranks_of_machine) {}

  // In the order of the ranks. Each thread gets the CPU of fewest threads near its first NIC, siblings of a core
  // counted together, and the last of those that are alike: programs begin at the first.
  std::vector<Proxy> plan(const RankFacts& facts, const std::vector<NicUse>& nics);

 private:
  int take_cpu(const Machine& machine, int numa);

  size_t ranks_, planned_ = 0;
  std::map<int, int> threads_of_cpu_;
};

}  // namespace ucclep::topology
