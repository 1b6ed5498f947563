// SPDX-License-Identifier: Apache-2.0
// What every rank must receive: dispatch and combine in plain loops over the whole world's routing. Nothing here knows
// how the library works; it says only what api and rules promise.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep::reference {

// The routing of one rank's tokens: tokens x k, row by row.
struct Routing {
  int64_t tokens = 0;
  int k = 1;
  std::vector<int64_t> experts;
  std::vector<float> weights;

  int64_t expert(int64_t token, int j) const { return experts[static_cast<size_t>(token * k + j)]; }
  float weight(int64_t token, int j) const { return weights[static_cast<size_t>(token * k + j)]; }
};

struct World {
  int ranks = 1;
  int experts = 1;
  std::vector<Routing> rank;
  // Ranks whose experts give nothing back. One that sends nothing either has no tokens.
  std::vector<int> absent = {};

  int local_experts() const { return experts / ranks; }
  int owner(int64_t expert) const { return static_cast<int>(expert / local_experts()); }
};

// Ids out of range and later copies of an id in a row become -1.
World cleaned(World world);

// A rank's expert map: the copies of each logical expert.
using ExpertMap = std::vector<std::vector<int64_t>>;
// How near ranks are to each other.
enum class Distance { own, domain, node, far };
// Of a world whose ids are logical experts the one of physical experts. Token t of rank r takes copy (r + t) mod copies
// by the rank's map, or with `distance` the first of the nearest copies, where one is not far. Ids that no map has and
// later copies of an id in a row become -1.
World mapped(World world, const std::vector<ExpertMap>& maps,
             const std::function<Distance(int rank, int other)>& distance = {});

// From here on every world is a cleaned one.
enum class Layout { ll_expert_major, ll_rank_major, ht_flat, ht_expert_major };
constexpr bool is_ll(Layout layout) {
  return layout == Layout::ll_expert_major || layout == Layout::ll_rank_major;
}
constexpr bool is_by_expert(Layout layout) {
  return layout == Layout::ll_expert_major || layout == Layout::ht_expert_major;
}

struct Shape {
  Layout layout = Layout::ht_flat;
  int64_t max_tokens = 1;     // B: the distance of the zones of LL
  int64_t alignment = 1;      // HT expert-major
  int64_t limit = INT64_MAX;  // HT: the group keeps no row at or beyond it
};

// One received row and where it lies.
struct Slot {
  int64_t row;  // in a three-dimensional tensor, counted through its two leading dimensions
  int source;
  int64_t token;
  int expert;  // local; -1: one row for all the local experts of the token
};

struct Placement {
  std::vector<Slot> slots;       // ascending by expert, then source, then token
  std::vector<int64_t> padding;  // rows that must be zero
  int64_t total = 0;             // N, padding included
};

// Every row has its place here, whether it is kept or not.
Placement placement(const World& world, const Shape& shape, int destination);
// Without the rows at or beyond `rows`.
Placement kept(Placement placement, int64_t rows);

struct Counters {
  std::vector<int64_t> tokens_per_expert;           // [L], padded; only rows that the group keeps
  std::vector<int64_t> tokens_per_expert_unpadded;  // [L]
  std::vector<int64_t> expert_offsets;              // [L + 1]
  std::vector<int64_t> tokens_per_rank;             // [R], rows of the layout
  std::vector<int64_t> tokens_per_expert_rank;      // [L, R]
  int64_t recv_total = 0;
};

Counters counters(const World& world, const Shape& shape, int destination);

struct RoutingCounts {
  std::vector<int64_t> tokens_per_rank;    // [R]
  std::vector<int64_t> tokens_per_expert;  // [E]
  std::vector<uint8_t> is_token_in_rank;   // [T, R]
};

RoutingCounts routing_counts(const World& world, int source);

// The topk_idx and topk_weights entries of a row that serves several experts: the source's k order, the experts of
// other ranks as -1 and 0.
std::vector<int64_t> received_experts(const World& world, const Slot& slot, int destination, bool global_ids);
std::vector<float> received_weights(const World& world, const Slot& slot, int destination);
// The weight of a row of an expert-major layout.
float received_weight(const World& world, const Slot& slot, int destination);

struct CombineProblem {
  const World* world;
  Shape shape;
  ucclEpDataType_t dtype;
  int64_t hidden;
  // One element of the tensor that rank `destination` passes to combine.
  std::function<float(int destination, int64_t row, int64_t column)> input;
  // What is added to [token, column] of the result, in this order; none, one or two.
  std::vector<std::function<float(int64_t token, int64_t column)>> biases;
  // Rows that each rank keeps, or empty: no row was dropped.
  std::vector<int64_t> kept_rows;
  // LL expert-major multiplies by these, tokens x k of the source rank, and so does HT expert-major if weighted.
  const Routing* weights;
  // HT between nodes sums per node: the node of each rank. Empty: one node.
  std::vector<int> node_of = {};
  bool weighted = false;
  // Backward: nothing is multiplied, and there are no biases. One weight of a row that rank `destination` passes; in
  // expert-major layouts k is 0.
  bool backward = false;
  std::function<float(int destination, int64_t row, int k)> weight_row = {};
};

// What rank `source` gets back: [tokens, hidden] before the last rounding is done, i.e. in fp32 and already rounded.
std::vector<float> combine(const CombineProblem& problem, int source);
// Backward: the sums of the rows' weights, tokens x k of the source rank.
std::vector<float> combined_weights(const CombineProblem& problem, int source);

}  // namespace ucclep::reference
