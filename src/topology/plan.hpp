// SPDX-License-Identifier: Apache-2.0
// Who shares what: nodes, domains, and the NICs and cores of each rank. A pure function of what all ranks say of
// themselves, so that every rank computes the same plan and nothing has to be negotiated.
#pragma once
#include <utility>
#include <vector>

#include "topology/placement.hpp"

namespace ucclep::topology {

// node_sizes as in UCCLEP_NODES, in the place of all ranks_per_node; empty: not given. ucclEpInvalidArgument names the
// rank whose facts do not fit.
Plan make_plan(const std::vector<RankFacts>& ranks, const std::vector<int>& node_sizes = {});

// The connections of two ranks of different nodes: a NIC of a's and one of b's, as indexes in their RankPlan::nics.
// Where they have rails in common only along those, else each NIC of the one with more has one. With a and b exchanged
// the same, mirrored.
std::vector<std::pair<int, int>> connections(const Plan& plan, int a, int b);

}  // namespace ucclep::topology
