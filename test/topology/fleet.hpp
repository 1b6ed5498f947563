// SPDX-License-Identifier: Apache-2.0
// Ranks on machines, for plans.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "topology/plan.hpp"

namespace ucclep::test {

// A machine of its own for each name.
NodeId node_id(const std::string& boot_id, uint64_t network_namespace = 1);

// `count` ranks on one machine, on its GPUs in order; on the CPU where it has none.
std::vector<topology::RankFacts> ranks_on(const std::shared_ptr<const topology::Machine>& machine, int count,
                                          const std::string& boot_id = "a");

// A machine of two NUMA nodes with 16 cores each. GPUs and NICs sit behind the switch whose number is given; switches
// 0 to 3 belong to NUMA node 0, others to node 1. NICs are called nic0, nic1, ...
topology::Machine machine_with(const std::vector<int>& switches_of_gpus, const std::vector<int>& switches_of_nics);

// "0 0 2: nic0 nic1 | 31 30": node, local rank and domain, the NICs, the CPUs of the proxies.
std::string summary(const std::vector<topology::RankFacts>& ranks, const topology::Plan& plan, int rank);

// The NICs of each rank: "nic0", "nic1 nic2".
std::vector<std::string> nics_of_ranks(const std::vector<topology::RankFacts>& ranks, const topology::Plan& plan);

}  // namespace ucclep::test
