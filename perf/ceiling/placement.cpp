// SPDX-License-Identifier: Apache-2.0
#include "ceiling/placement.hpp"

#include <algorithm>
#include <numeric>

namespace ucclep::perf {
namespace {

// wanted(source, token, rank): the row goes there.
template <class Wanted>
Placement place(int ranks, int tokens, Wanted&& wanted) {
  Placement result;
  result.ranks = ranks;
  result.tokens = tokens;
  result.origins.resize(ranks);
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

int Placement::max_received() const {
  int max = 0;
  for (int rank = 0; rank < ranks; ++rank) max = std::max(max, received(rank));
  return max;
}

int Placement::expanded(int rank) const {
  if (slots == 0) return received(rank);
  return static_cast<int>(std::ranges::count_if(copies[rank], [](int32_t row) { return row >= 0; }));
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
  return place_routing(shape, make_routing(shape, tokens, 1));
}

Placement place_routing(const Shape& shape, const Routing& routing) {
  return place(shape.ranks, routing.tokens(), [&](int source, int token, int rank) {
    const int32_t* experts = routing.experts(source, token);
    return std::any_of(experts, experts + shape.topk, [&](int32_t expert) { return shape.rank_of(expert) == rank; });
  });
}

Placement place_copies(const Shape& shape, int tokens) {
  const Routing routing = make_routing(shape, tokens, 1);
  Placement result = place_routing(shape, tokens);
  result.slots = shape.topk;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::vector<int32_t>& copies = result.copies.emplace_back(result.origins[rank].size() * shape.topk, -1);
    const auto each = [&](auto&& act) {  // act(copy, local expert)
      for (size_t row = 0; row < result.origins[rank].size(); ++row) {
        const int32_t origin = result.origins[rank][row];
        const int32_t* experts = routing.experts(origin / tokens, origin % tokens);
        for (int k = 0; k < shape.topk; ++k) {
          if (shape.rank_of(experts[k]) == rank) act(copies[row * shape.topk + k], experts[k] % shape.local_experts());
        }
      }
    };
    std::vector<int32_t> next(shape.local_experts() + 1);
    each([&](int32_t&, int local) { ++next[local + 1]; });
    std::partial_sum(next.begin(), next.end(), next.begin());
    each([&](int32_t& copy, int local) { copy = next[local]++; });
  }
  return result;
}

Placement place_all_to_all(int ranks, int tokens) {
  return place(ranks, tokens,
               [&](int source, int token, int rank) { return rank == (source + 1 + token % (ranks - 1)) % ranks; });
}

}  // namespace ucclep::perf
