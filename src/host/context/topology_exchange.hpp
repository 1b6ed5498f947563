// SPDX-License-Identifier: Apache-2.0
// Where all ranks are and what connects them: each rank sends facts about itself to all others, and every rank makes
// the same plan of them.
#pragma once
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "device/device.hpp"
#include "host/context/config.hpp"
#include "topology/plan.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

class Bootstrap;

struct ExchangedTopology {
  std::vector<topology::RankFacts> ranks;
  topology::Plan plan;

  const topology::RankPlan& of(int rank) const { return plan.ranks[static_cast<size_t>(rank)]; }
  std::vector<int> sharers_of_gpu(int rank) const;  // the ranks of the GPU that this rank uses, itself included
  int numa_node_of_gpu(int rank) const;             // as the kernel counts; -1: it has no GPU, or none is the nearest
  std::string nic_names(int rank) const;            // "mlx5_0,mlx5_1"
};

// Collective: the name of the transport. The one asked for; where no rank is on another machine loopback; else the
// fastest that serves all ranks, and one log line says which, and why not another. Empty: no rank needs a transport.
// Error(ucclEpNotSupported), on all ranks: none serves them.
std::string agreed_transport(Bootstrap& bootstrap, const ExchangedTopology& topology, const std::string& asked,
                             const topology::RankFacts& own, Deadline deadline);

// The name of the transport that is asked for, empty for none. Error(ucclEpInvalidArgument) names what exists.
std::string asked_transport(const Config& config, const ucclEpCommConfig_t& asked);

// What this rank sends to the others. Error(ucclEpInvalidArgument) for a topology file or NICs that do not exist. The
// machine is explored once per process.
topology::RankFacts facts_of_this_rank(const Config& config, const ucclEpCommConfig_t& asked,
                                       const DeviceTraits& traits);

// Collective. node_sizes: UCCLEP_NODES, the same on all ranks.
ExchangedTopology exchange_topology(Bootstrap& bootstrap, const topology::RankFacts& own,
                                    const std::vector<int>& node_sizes, Deadline deadline);

}  // namespace ucclep
