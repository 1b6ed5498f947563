// SPDX-License-Identifier: Apache-2.0
// Machines and a plan for people to read: as text, and as a picture.
#pragma once
#include <string>
#include <vector>

#include "topology/plan.hpp"

namespace ucclep::topology {

std::string links_text(const GpuLinks& links);  // "NVLink island 0"

std::string to_text(const std::vector<RankFacts>& ranks, const Plan& plan);

// One line on one rank, for logs.
std::string place_text(const std::vector<RankFacts>& ranks, const Plan& plan, int rank);

// Each machine with its NUMA nodes, GPUs and NICs. GPUs have arrows to the NICs that their ranks use; NICs of a rail
// have one colour on all machines.
std::string to_svg(const std::vector<RankFacts>& ranks, const Plan& plan);

}  // namespace ucclep::topology
