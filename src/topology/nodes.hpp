// SPDX-License-Identifier: Apache-2.0
// Which ranks make up a node, and which a domain.
#pragma once
#include <vector>

#include "topology/placement.hpp"

namespace ucclep::topology {

// The ranks of each machine, by the boot id alone, and of each node; both by their lowest rank.
std::vector<std::vector<int>> group_by_machine(const std::vector<RankFacts>& ranks);
std::vector<std::vector<int>> group_by_node(const std::vector<RankFacts>& ranks, const std::vector<int>& node_sizes);

// A node's ranks are one domain, and so are several nodes whose GPUs are all of one fabric, unless a setting divides
// them.
std::vector<Domain> group_by_domain(const std::vector<RankFacts>& ranks, const std::vector<std::vector<int>>& nodes,
                                    bool virtual_nodes);

}  // namespace ucclep::topology
