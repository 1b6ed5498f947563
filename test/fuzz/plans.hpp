// SPDX-License-Identifier: Apache-2.0
// What is done with a machine that came from outside: it is told to other ranks, planned and shown.
#pragma once
#include <memory>
#include <vector>

#include "target.hpp"
#include "topology/json.hpp"
#include "topology/plan.hpp"

namespace ucclep::fuzz {

inline void use(const topology::Machine& machine, const topology::RankFacts& facts = {}) {
  const std::string json = topology::pack(machine);
  require(topology::pack(topology::parse_machine(json)) == json, "a machine survives its JSON");
  std::vector<topology::RankFacts> ranks(3, facts);
  for (topology::RankFacts& one : ranks) one.machine = std::make_shared<const topology::Machine>(machine);
  accepts([&] {
    const topology::Plan plan = topology::make_plan(ranks);
    require(!topology::to_json(ranks, plan).empty(), "a plan has a JSON");
    for (int rank = 0; rank < 3; ++rank) topology::connections(plan, 0, rank);
  });
}

}  // namespace ucclep::fuzz
