// SPDX-License-Identifier: Apache-2.0
// The NICs of one machine, shared out among its ranks.
#pragma once
#include <vector>

#include "topology/topology.hpp"

namespace ucclep::topology {

struct Seat {
  const Machine* machine;  // as the rank sees it
  int gpu;                 // -1: none
  std::vector<int> nics;   // that it may use: indexes in machine->nics
};

// Of one of its machine's NICs from its GPU; the farthest there is without a GPU.
Distance distance_to(const Seat& seat, int nic);

// For each seat indexes in its machine's nics, ascending; none only where it may use none. A rank gets NICs of those
// nearest to its GPU only. Ranks with the same nearest NICs share them evenly: each gets as many for itself as there
// are for everybody, and what is left serves all of them; when there are fewer NICs than ranks, a rank gets the one
// that serves the fewest.
std::vector<std::vector<int>> deal_nics(const std::vector<Seat>& seats);

}  // namespace ucclep::topology
