// SPDX-License-Identifier: Apache-2.0
// Compiled with -ffp-contract=off: a product is rounded before it is added.
#include "reference/reference.hpp"

#include <algorithm>
#include <stdexcept>

#include "reference/numeric.hpp"

namespace ucclep::reference {
namespace {

bool serves(const World& world, int source, int64_t token, int64_t expert) {
  const Routing& routing = world.rank[static_cast<size_t>(source)];
  for (int j = 0; j < routing.k; ++j) {
    if (routing.expert(token, j) == expert) return true;
  }
  return false;
}

bool reaches(const World& world, int source, int64_t token, int destination) {
  const Routing& routing = world.rank[static_cast<size_t>(source)];
  for (int j = 0; j < routing.k; ++j) {
    if (routing.expert(token, j) >= 0 && world.owner(routing.expert(token, j)) == destination) return true;
  }
  return false;
}

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A function of (source, token) for every token of every rank, in the order of all layouts.
template <class Visit>
void for_each_token(const World& world, Visit&& visit) {
  for (int source = 0; source < world.ranks; ++source) {
    for (int64_t token = 0; token < world.rank[static_cast<size_t>(source)].tokens; ++token) visit(source, token);
  }
}

Placement expert_major(const World& world, const Shape& shape, int destination) {
  Placement result;
  const bool slabs = shape.layout == Layout::ll_expert_major;
  int64_t begin = 0;  // of the expert's zone
  for (int local = 0; local < world.local_experts(); ++local) {
    const int64_t expert = int64_t{destination} * world.local_experts() + local;
    int64_t next = begin;
    for_each_token(world, [&](int source, int64_t token) {
      if (serves(world, source, token, expert)) result.slots.push_back({next++, source, token, local});
    });
    if (slabs) {
      result.total += next - begin;
      begin += world.ranks * shape.max_tokens;
    } else {
      const int64_t end = begin + rounded_up(next - begin, shape.alignment);
      while (next < end) result.padding.push_back(next++);
      result.total = begin = end;
    }
  }
  return result;
}

Placement by_source(const World& world, const Shape& shape, int destination) {
  Placement result;
  int current = 0;
  int64_t next = 0;
  for_each_token(world, [&](int source, int64_t token) {
    if (shape.layout == Layout::ll_rank_major && source != current) next = source * shape.max_tokens;
    current = source;
    if (!reaches(world, source, token, destination)) return;
    result.slots.push_back({next++, source, token, -1});
  });
  result.total = static_cast<int64_t>(result.slots.size());
  return result;
}

}  // namespace

World cleaned(World world) {
  for (Routing& routing : world.rank) {
    for (int64_t token = 0; token < routing.tokens; ++token) {
      int64_t* row = routing.experts.data() + token * routing.k;
      for (int j = 0; j < routing.k; ++j) {
        if (row[j] < 0 || row[j] >= world.experts || std::find(row, row + j, row[j]) != row + j) row[j] = -1;
      }
    }
  }
  return world;
}

World mapped(World world, const std::vector<ExpertMap>& maps,
             const std::function<Distance(int rank, int other)>& distance) {
  for (int rank = 0; rank < world.ranks; ++rank) {
    const ExpertMap& map = maps[static_cast<size_t>(rank)];
    Routing& routing = world.rank[static_cast<size_t>(rank)];
    const std::vector<int64_t> logical = cleaned({1, static_cast<int>(map.size()), {routing}}).rank[0].experts;
    for (size_t i = 0; i < logical.size(); ++i) {
      routing.experts[i] = -1;
      if (logical[i] < 0) continue;
      const std::vector<int64_t>& copies = map[static_cast<size_t>(logical[i])];
      const auto far = [&](int64_t copy) { return distance ? distance(rank, world.owner(copy)) : Distance::far; };
      const auto nearest =
          std::min_element(copies.begin(), copies.end(), [&](int64_t a, int64_t b) { return far(a) < far(b); });
      const size_t turn = (static_cast<size_t>(rank) + i / static_cast<size_t>(routing.k)) % copies.size();
      routing.experts[i] = far(*nearest) < Distance::far ? *nearest : copies[turn];
    }
  }
  return world;
}

Placement placement(const World& world, const Shape& shape, int destination) {
  return is_by_expert(shape.layout) ? expert_major(world, shape, destination) : by_source(world, shape, destination);
}

Placement kept(Placement placement, int64_t rows) {
  std::erase_if(placement.slots, [&](const Slot& slot) { return slot.row >= rows; });
  std::erase_if(placement.padding, [&](int64_t row) { return row >= rows; });
  return placement;
}

Counters counters(const World& world, const Shape& shape, int destination) {
  const int local_experts = world.local_experts();
  Counters result;
  result.tokens_per_expert_unpadded.resize(static_cast<size_t>(local_experts));
  result.tokens_per_expert_rank.resize(static_cast<size_t>(local_experts * world.ranks));
  result.tokens_per_rank.resize(static_cast<size_t>(world.ranks));
  for_each_token(world, [&](int source, int64_t token) {
    for (int local = 0; local < local_experts; ++local) {
      if (!serves(world, source, token, int64_t{destination} * local_experts + local)) continue;
      ++result.tokens_per_expert_unpadded[static_cast<size_t>(local)];
      ++result.tokens_per_expert_rank[static_cast<size_t>(local * world.ranks + source)];
    }
  });
  const Placement placed = placement(world, shape, destination);
  for (const Slot& slot : placed.slots) ++result.tokens_per_rank[static_cast<size_t>(slot.source)];
  result.recv_total = placed.total;
  const bool in_zones = !is_ll(shape.layout) && is_by_expert(shape.layout);
  const int64_t alignment = in_zones ? shape.alignment : 1;
  result.expert_offsets.push_back(0);
  for (const int64_t count : result.tokens_per_expert_unpadded) {
    const int64_t begin = result.expert_offsets.back(), rows = rounded_up(count, alignment);
    const int64_t before = in_zones ? begin : 0;
    result.tokens_per_expert.push_back(std::clamp(shape.limit - before, int64_t{0}, rows));
    result.expert_offsets.push_back(begin + rows);
  }
  return result;
}

RoutingCounts routing_counts(const World& world, int source) {
  const Routing& routing = world.rank[static_cast<size_t>(source)];
  RoutingCounts result{std::vector<int64_t>(static_cast<size_t>(world.ranks)),
                       std::vector<int64_t>(static_cast<size_t>(world.experts)),
                       {}};
  for (int64_t token = 0; token < routing.tokens; ++token) {
    for (int rank = 0; rank < world.ranks; ++rank) {
      const bool goes = reaches(world, source, token, rank);
      result.is_token_in_rank.push_back(goes);
      result.tokens_per_rank[static_cast<size_t>(rank)] += goes;
    }
  }
  for (const int64_t expert : routing.experts) {
    if (expert >= 0) ++result.tokens_per_expert[static_cast<size_t>(expert)];
  }
  return result;
}

std::vector<int64_t> received_experts(const World& world, const Slot& slot, int destination, bool global_ids) {
  const Routing& routing = world.rank[static_cast<size_t>(slot.source)];
  const int64_t first = int64_t{destination} * world.local_experts();
  std::vector<int64_t> result;
  for (int j = 0; j < routing.k; ++j) {
    const int64_t expert = routing.expert(slot.token, j);
    const bool here = expert >= 0 && world.owner(expert) == destination;
    result.push_back(!here ? -1 : global_ids ? expert : expert - first);
  }
  return result;
}

std::vector<float> received_weights(const World& world, const Slot& slot, int destination) {
  const Routing& routing = world.rank[static_cast<size_t>(slot.source)];
  std::vector<float> result;
  for (int j = 0; j < routing.k; ++j) {
    const int64_t expert = routing.expert(slot.token, j);
    const bool here = expert >= 0 && world.owner(expert) == destination;
    result.push_back(here ? routing.weight(slot.token, j) : 0.0f);
  }
  return result;
}

float received_weight(const World& world, const Slot& slot, int destination) {
  const Routing& routing = world.rank[static_cast<size_t>(slot.source)];
  const int64_t expert = int64_t{destination} * world.local_experts() + slot.expert;
  for (int j = 0; j < routing.k; ++j) {
    if (routing.expert(slot.token, j) == expert) return routing.weight(slot.token, j);
  }
  throw std::logic_error("received_weight: the token does not go to this expert");
}

namespace {

// One column of one token: terms are added in ascending order, `term` starts the sum when there is none yet.
struct Sum {
  bool started = false;
  float value = 0;

  void add(float term) {
    value = started ? value + term : term;
    started = true;
  }
};

// The sums of a tree: slots of a rank, rounded to dtype; ranks of a node, rounded to dtype where there are several;
// nodes. term(destination, slot, column, value): false where the slot has no term for the column.
using Term = std::function<bool(int destination, const Slot& slot, size_t column, float& value)>;

std::vector<Sum> sum_tree(const CombineProblem& problem, int source, size_t columns, ucclEpDataType_t dtype,
                          const Term& term) {
  const World& world = *problem.world;
  const auto tokens = static_cast<size_t>(world.rank[static_cast<size_t>(source)].tokens);
  // One node, and LL: the sum of all ranks needs no rounding of its own.
  std::vector<int> node_of = is_ll(problem.shape.layout) ? std::vector<int>{} : problem.node_of;
  node_of.resize(static_cast<size_t>(world.ranks));
  const int nodes = 1 + *std::max_element(node_of.begin(), node_of.end());

  std::vector<std::vector<Sum>> of_node(static_cast<size_t>(nodes), std::vector<Sum>(tokens * columns));
  for (int destination = 0; destination < world.ranks; ++destination) {
    if (std::find(world.absent.begin(), world.absent.end(), destination) != world.absent.end()) continue;
    std::vector<Sum>& sums = of_node[static_cast<size_t>(node_of[static_cast<size_t>(destination)])];
    std::vector<Sum> partial(tokens * columns);
    const int64_t rows = problem.kept_rows.empty() ? INT64_MAX : problem.kept_rows[static_cast<size_t>(destination)];
    for (const Slot& slot : kept(placement(world, problem.shape, destination), rows).slots) {
      if (slot.source != source) continue;
      for (size_t column = 0; column < columns; ++column) {
        float value = 0;
        if (term(destination, slot, column, value))
          partial[static_cast<size_t>(slot.token) * columns + column].add(value);
      }
    }
    for (size_t i = 0; i < partial.size(); ++i) {
      if (partial[i].started) sums[i].add(rounded(dtype, partial[i].value));
    }
  }
  if (nodes == 1) return of_node.front();
  std::vector<Sum> result(tokens * columns);
  for (const std::vector<Sum>& sums : of_node) {
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].started) result[i].add(rounded(dtype, sums[i].value));
    }
  }
  return result;
}

}  // namespace

std::vector<float> combine(const CombineProblem& problem, int source) {
  const World& world = *problem.world;
  const auto hidden = static_cast<size_t>(problem.hidden);
  const bool weighted = (problem.shape.layout == Layout::ll_expert_major || problem.weighted) && !problem.backward;
  World weights_world = world;
  if (weighted) weights_world.rank[static_cast<size_t>(source)].weights = problem.weights->weights;
  const Term term = [&](int destination, const Slot& slot, size_t column, float& value) {
    value = problem.input(destination, slot.row, static_cast<int64_t>(column));
    if (weighted) value = value * received_weight(weights_world, slot, destination);
    return true;
  };
  std::vector<float> values;
  for (const Sum& sum : sum_tree(problem, source, hidden, problem.dtype, term)) {
    const size_t i = values.size();
    float value = sum.value;
    for (const auto& bias : problem.biases) {
      value = value + bias(static_cast<int64_t>(i / hidden), static_cast<int64_t>(i % hidden));
    }
    values.push_back(rounded(problem.dtype, value));
  }
  return values;
}

std::vector<float> combined_weights(const CombineProblem& problem, int source) {
  const World& world = *problem.world;
  const Routing& routing = world.rank[static_cast<size_t>(source)];
  const Term term = [&](int destination, const Slot& slot, size_t column, float& value) {
    const int k = static_cast<int>(column);
    const bool by_expert = slot.expert >= 0;
    if (by_expert && routing.expert(slot.token, k) != int64_t{destination} * world.local_experts() + slot.expert)
      return false;
    value = problem.weight_row(destination, slot.row, by_expert ? 0 : k);
    return true;
  };
  std::vector<float> values;
  for (const Sum& sum : sum_tree(problem, source, static_cast<size_t>(routing.k), ucclEpFloat32, term)) {
    values.push_back(sum.value);
  }
  return values;
}

}  // namespace ucclep::reference
