// SPDX-License-Identifier: Apache-2.0
// Where everything of a machine's picture lies. NUMA nodes stand side by side; in each a row of GPUs, and below it the
// NICs, in stacks of those that the same ranks use, under them.
#pragma once
#include <string>
#include <vector>

#include "topology/plan.hpp"

namespace ucclep::topology {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
  double centre() const { return x + width / 2; }
};

// A GPU with its ranks, or a rank that has none.
struct Endpoint {
  int gpu = -1;
  std::vector<int> ranks;
  int numa = -1;
  Box box;
};

struct NicStack {
  std::vector<int> endpoints;  // that use its NICs; indexes in MachineLayout::endpoints
  std::vector<int> nics;       // indexes in Machine::nics, from above
  int numa = -1;
  std::vector<Box> boxes;  // of the NICs
};

struct MachineLayout {
  std::string title;
  std::vector<Endpoint> endpoints;
  std::vector<NicStack> stacks;
  std::vector<Box> numa_boxes;  // one more than NUMA nodes where something is near none of them
  Box box;                      // with a title and the links of the GPUs above the NUMA nodes
  double links_top = 0;
};

// The picture begins at `top`; `ranks` are all that the plan was made for.
MachineLayout lay_out(const std::vector<RankFacts>& ranks, const Plan& plan, const MachinePlan& machine, double top);

}  // namespace ucclep::topology
