// SPDX-License-Identifier: Apache-2.0
// Where every row lies at its receiver: in order of source rank and token, as in the layout FLAT.
#pragma once
#include <cstdint>
#include <vector>

#include "workload.hpp"

namespace ucclep::perf {

struct Placement {
  int ranks = 0, tokens = 0;
  std::vector<std::vector<int32_t>> places;   // of each source: [tokens][ranks], -1: not there
  std::vector<std::vector<int32_t>> origins;  // of each receiver: source * tokens + token of each row
  // Where rows are expanded to experts, of each receiver: [rows][slots], rows of the output, one zone an expert, -1:
  // none
  std::vector<std::vector<int32_t>> copies;
  int slots = 0;

  int received(int rank) const { return static_cast<int>(origins[rank].size()); }
  int max_received() const;
  int expanded(int rank) const;  // rows of the output
  uint64_t all_rows() const;
  uint64_t remote_rows() const;
};

// One row per (token, rank) of a routing, or of the first.
Placement place_routing(const Shape& shape, const Routing& routing);
Placement place_routing(const Shape& shape, int tokens);
// The same, with a copy for each expert, as in EXPERT_MAJOR.
Placement place_copies(const Shape& shape, int tokens);
// Every row at one other rank, in turn.
Placement place_all_to_all(int ranks, int tokens);

}  // namespace ucclep::perf
