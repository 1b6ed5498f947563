// SPDX-License-Identifier: Apache-2.0
#include "ceiling/placement.hpp"

#include <algorithm>

namespace ucclep::perf {
namespace {

// wanted(source, token, rank): the row goes there.
template <class Wanted>
Placement place(int ranks, int tokens, Wanted&& wanted) {
  Placement result{ranks, tokens, {}, std::vector<std::vector<int32_t>>(ranks)};
  for (int source = 0; source < ranks; ++source) {
    std::vector<int32_t>& places = result.places.emplace_back(static_cast<size_t>(tokens) * ranks, -1);
    for (int token = 0; token < tokens; ++token) {
      for (int rank = 0; rank < ranks; ++rank) {
        if (!wanted(source, token, rank)) continue;
        places[static_cast<size_t>(token) * ranks + rank] = result.received(rank);
        result.origins[rank].push_back(source * tokens + token);
      }
    }
  }
  return result;
}

}  // namespace

int Placement::most_received() const {
  int most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, received(rank));
  return most;
}

uint64_t Placement::all_rows() const {
  uint64_t rows = 0;
  for (const std::vector<int32_t>& of_rank : origins) rows += of_rank.size();
  return rows;
}

uint64_t Placement::remote_rows() const {
  uint64_t rows = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int32_t origin : origins[rank]) rows += origin / tokens != rank;
  }
  return rows;
}

Placement place_routing(const Shape& shape, int tokens) {
  const Routing routing = make_routing(shape, tokens, 1);
  return place(shape.ranks, tokens, [&](int source, int token, int rank) {
    const int32_t* experts = routing.experts(source, token);
    return std::any_of(experts, experts + shape.topk, [&](int32_t expert) { return shape.rank_of(expert) == rank; });
  });
}

Placement place_all_to_all(int ranks, int tokens) {
  return place(ranks, tokens,
               [&](int source, int token, int rank) { return rank == (source + 1 + token % (ranks - 1)) % ranks; });
}

}  // namespace ucclep::perf
