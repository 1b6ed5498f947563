// SPDX-License-Identifier: Apache-2.0
// The tensors that a receiver would have after a faultless dispatch, for tests that then damage them.
#pragma once
#include <cstring>
#include <vector>

#include "verify.hpp"

namespace ucclep::perf {

class PerfectReceiver {
 public:
  PerfectReceiver(const Shape& shape, const Routing& routing, uint64_t iteration, int receiver, int capacity)
      : shape_(shape),
        routing_(routing),
        iteration_(iteration),
        receiver_(receiver),
        zones(expected_zones(shape, routing, receiver, capacity)) {
    const auto rows = static_cast<size_t>(tensor_rows(shape, capacity));
    entries = shape.per_expert() ? 1 : shape.topk;
    tokens.resize(rows * shape.row_bytes());
    scales.resize(rows * shape.scales() * sizeof(float));
    weights.resize(rows * entries);
    topk_idx.resize(shape.per_expert() ? 0 : rows * entries);
    src_info.resize(rows);
    for (const Zone& zone : zones) {
      counts.push_back(static_cast<int64_t>(zone.rows.size()));
      for (size_t i = 0; i < zone.rows.size(); ++i) fill(zone.rows[i], zone.first + i);
    }
  }

  Tally verify() const {
    Received received;
    received.tokens = tokens.data();
    received.scales = scales.empty() ? nullptr : scales.data();
    received.weights = weights.data();
    received.topk_idx = topk_idx.empty() ? nullptr : topk_idx.data();
    received.src_info = src_info.data();
    received.counts = counts;
    return verify_dispatch(shape_, routing_, iteration_, receiver_, zones, received,
                           [](const void* memory, size_t) { return static_cast<const std::byte*>(memory); });
  }

  uint64_t expected_rows() const {
    uint64_t rows = 0;
    for (const Zone& zone : zones) rows += zone.rows.size();
    return rows;
  }

  // The first zone that has at least this many rows.
  size_t zone_with(size_t rows) const {
    for (size_t z = 0; z < zones.size(); ++z) {
      if (zones[z].rows.size() >= rows) return z;
    }
    throw std::logic_error("no zone is so large");
  }

 private:
  void fill(const ExpectedRow& row, size_t place) {
    received_row(shape_, iteration_, row.source, row.token, tokens.data() + place * shape_.row_bytes(),
                 scales.data() + place * shape_.scales() * sizeof(float));
    src_info[place] = (static_cast<int64_t>(row.source) << 32) | row.token;
    for (int k = 0; k < shape_.topk; ++k) {
      const int32_t expert = routing_.experts(row.source, row.token)[k];
      const float weight = routing_.weights(row.source, row.token)[k];
      const bool mine = shape_.rank_of(expert) == receiver_;
      if (!shape_.per_expert()) {
        topk_idx[place * entries + k] = mine ? expert - receiver_ * shape_.local_experts() : -1;
        weights[place * entries + k] = mine ? weight : 0.0f;
      } else if (expert == row.expert) {
        weights[place] = weight;
      }
    }
  }

  const Shape& shape_;
  const Routing& routing_;
  uint64_t iteration_;
  int receiver_;

 public:
  std::vector<Zone> zones;
  size_t entries = 1;  // of weights and topk_idx per row
  std::vector<std::byte> tokens, scales;
  std::vector<float> weights;
  std::vector<int64_t> topk_idx, src_info, counts;
};

}  // namespace ucclep::perf
