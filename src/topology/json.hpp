// SPDX-License-Identifier: Apache-2.0
// Machines, ranks and plans as JSON: for other ranks, for programs, and for ucclEpCommGetTopology.
#pragma once
#include <string>
#include <vector>

#include "topology/plan.hpp"

namespace ucclep::topology {

// One line. parse(pack(m)) == m; what does not parse is ucclEpInternalError.
std::string pack(const Machine& machine);
Machine parse_machine(const std::string& text);

// The same, but for node and machine, which travel by themselves.
std::string pack(const RankFacts& facts);
RankFacts parse_facts(const std::string& text);

// {"version", "machines", "nodes", "domains", "ranks"}; docs/architecture.md describes the fields.
std::string to_json(const std::vector<RankFacts>& ranks, const Plan& plan);

}  // namespace ucclep::topology
