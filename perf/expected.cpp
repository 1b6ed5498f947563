// SPDX-License-Identifier: Apache-2.0
#include "expected.hpp"

#include <algorithm>
#include <utility>

#include "numeric.hpp"

namespace ucclep::perf {
namespace {

bool sends_to(const Shape& shape, const int32_t* experts, int rank) {
  return std::any_of(experts, experts + shape.topk, [&](int32_t e) { return shape.rank_of(e) == rank; });
}

std::vector<Zone> expert_zones(const Shape& shape, const Routing& routing, int receiver, int capacity) {
  const int local = shape.local_experts();
  const int first_expert = receiver * local;
  std::vector<Zone> zones(local);
  for (int source = 0; source < shape.ranks; ++source) {
    for (int token = 0; token < routing.tokens(); ++token) {
      const int32_t* experts = routing.experts(source, token);
      for (int k = 0; k < shape.topk; ++k) {
        if (shape.rank_of(experts[k]) == receiver) {
          zones[experts[k] - first_expert].rows.push_back({source, token, experts[k]});
        }
      }
    }
  }
  int64_t next = 0;
  for (int l = 0; l < local; ++l) {
    zones[l].first = shape.mode == UCCLEP_MODE_LL ? static_cast<int64_t>(l) * shape.ranks * capacity : next;
    next += static_cast<int64_t>(zones[l].rows.size());
  }
  return zones;
}

std::vector<Zone> source_zones(const Shape& shape, const Routing& routing, int receiver, int capacity) {
  std::vector<Zone> zones(shape.ranks);
  int64_t next = 0;
  for (int source = 0; source < shape.ranks; ++source) {
    Zone& zone = zones[source];
    for (int token = 0; token < routing.tokens(); ++token) {
      if (sends_to(shape, routing.experts(source, token), receiver)) zone.rows.push_back({source, token, -1});
    }
    zone.first = shape.layout == UCCLEP_LAYOUT_RANK_MAJOR ? static_cast<int64_t>(source) * capacity : next;
    next += static_cast<int64_t>(zone.rows.size());
  }
  return zones;
}

}  // namespace

std::vector<Zone> expected_zones(const Shape& shape, const Routing& routing, int receiver, int capacity) {
  return shape.per_expert() ? expert_zones(shape, routing, receiver, capacity)
                            : source_zones(shape, routing, receiver, capacity);
}

int64_t tensor_rows(const Shape& shape, int capacity) {
  const int64_t per_zone = static_cast<int64_t>(shape.ranks) * capacity;
  return shape.per_expert() ? per_zone * shape.local_experts() : per_zone;
}

int64_t max_expert_rows(const Shape& shape, const Routing& routing) {
  std::vector<int64_t> rows(shape.ranks);
  for (int source = 0; source < shape.ranks; ++source) {
    for (int token = 0; token < routing.tokens(); ++token) {
      const int32_t* experts = routing.experts(source, token);
      for (int k = 0; k < shape.topk; ++k) ++rows[shape.rank_of(experts[k])];
    }
  }
  return *std::max_element(rows.begin(), rows.end());
}

int output_part(const Shape& shape, const ExpectedRow& row, int receiver) {
  return shape.per_expert() ? row.expert : receiver;
}

CombineReference::CombineReference(const Shape& shape, const Routing& routing, uint64_t iteration,
                                   std::vector<int> node_of_rank)
    : shape_(shape),
      routing_(routing),
      iteration_(iteration),
      node_of_rank_(std::move(node_of_rank)),
      bytes_(shape.combine_row_bytes()),
      values_(shape.hidden),
      partial_(shape.hidden),
      node_sum_(shape.hidden),
      sum_(shape.hidden) {
  // LL never sums per node.
  if (node_of_rank_.empty() || shape.mode == UCCLEP_MODE_LL) node_of_rank_.assign(shape.ranks, 0);
}

void CombineReference::add_output(int source, int token, int part, float weight, bool first, std::vector<float>& sum) {
  const uint64_t key = shape_.returns_tokens ? row_key(shape_, iteration_, Kind::tokens, source, token)
                                             : row_key(shape_, iteration_, Kind::expert_output, source, token, part);
  fill_row(shape_.combine_dtype(), key, bytes_.data(), bytes_.size());
  decode_row(shape_.combine_dtype(), bytes_.data(), values_.size(), values_.data());
  for (size_t i = 0; i < sum.size(); ++i) {
    const float product = weight * values_[i];
    sum[i] = first ? product : sum[i] + product;
  }
}

void CombineReference::round(std::vector<float>& values) {
  encode_row(shape_.combine_dtype(), values.data(), values.size(), bytes_.data());
  decode_row(shape_.combine_dtype(), bytes_.data(), values.size(), values.data());
}

void CombineReference::rank_partial(int source, int token, int rank, std::vector<float>& partial) {
  if (!shape_.per_expert()) return add_output(source, token, rank, 1.0f, true, partial);
  const int32_t* experts = routing_.experts(source, token);
  const float* weights = routing_.weights(source, token);
  std::vector<std::pair<int32_t, float>> here;
  for (int k = 0; k < shape_.topk; ++k) {
    // In HT the caller has weighted the rows.
    const float weight = shape_.mode == UCCLEP_MODE_LL ? weights[k] : 1.0f;
    if (shape_.rank_of(experts[k]) == rank) here.emplace_back(experts[k], weight);
  }
  std::sort(here.begin(), here.end());
  for (size_t i = 0; i < here.size(); ++i) {
    add_output(source, token, here[i].first, here[i].second, i == 0, partial);
  }
  round(partial);
}

std::span<const std::byte> CombineReference::row(int source, int token) {
  const auto add = [](std::vector<float>& sum, const std::vector<float>& term, bool first) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = first ? term[i] : sum[i] + term[i];
  };
  const int nodes = 1 + *std::max_element(node_of_rank_.begin(), node_of_rank_.end());
  bool first_of_all = true;
  for (int node = 0; node < nodes; ++node) {
    bool first_of_node = true;
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      if (node_of_rank_[rank] != node || !sends_to(shape_, routing_.experts(source, token), rank)) continue;
      rank_partial(source, token, rank, partial_);
      add(node_sum_, partial_, first_of_node);
      first_of_node = false;
    }
    if (first_of_node) continue;
    if (nodes > 1) round(node_sum_);
    add(sum_, node_sum_, first_of_all);
    first_of_all = false;
  }
  encode_row(shape_.combine_dtype(), sum_.data(), sum_.size(), bytes_.data());
  return bytes_;
}

}  // namespace ucclep::perf
