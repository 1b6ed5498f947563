// SPDX-License-Identifier: Apache-2.0
#include "host/context/ll_copies.hpp"

#include <algorithm>
#include <numeric>

namespace ucclep {
namespace {

// How likely a token wants at least one expert of so many.
double wants(const CopyShape& shape, double experts) {
  double none = 1;
  for (uint32_t k = 0; k < shape.top_k; ++k) {
    const double left = static_cast<double>(shape.experts) - k;
    none *= std::max(0.0, left - experts) / left;
  }
  return 1 - none;
}

// Ranks of a node of `size` whose relay is the member of another node with that index, as nodes.hpp has it.
uint32_t sources_of(uint32_t index, uint32_t own_size, uint32_t size) {
  return index < size ? (size - index + own_size - 1) / own_size : 0;
}

}  // namespace

const char* copies_name(LlCopies copies) {
  return copies == LlCopies::automatic ? "auto" : copies == LlCopies::rank ? "rank" : "node";
}

CopyTimes copy_times(const CopyShape& shape) {
  const std::vector<uint32_t>& sizes = shape.node_sizes;
  const uint32_t ranks = std::accumulate(sizes.begin(), sizes.end(), 0u);
  const double local = static_cast<double>(shape.experts) / ranks, to_rank = wants(shape, local);
  double by_rank = 0, by_node = 0, forwarded = 0;  // rows for each token
  for (size_t own = 0; own < sizes.size(); ++own) {
    by_rank = std::max(by_rank, (ranks - sizes[own]) * to_rank);
    double out = 0;
    uint32_t sources = 0;  // of the first member, which is the relay of most
    for (size_t node = 0; node < sizes.size(); ++node) {
      if (node == own) continue;
      out += wants(shape, sizes[node] * local);
      sources += sources_of(0, sizes[own], sizes[node]);
    }
    by_node = std::max({by_node, out, sources * wants(shape, sizes[own] * local)});
    forwarded = std::max(forwarded, sources * sizes[own] * to_rank);
  }
  const double bytes = static_cast<double>(shape.tokens) * static_cast<double>(shape.row_bytes);
  return {bytes * by_rank / CopyRule::nic,
          bytes * by_node / CopyRule::nic + CopyRule::forward + bytes * forwarded / CopyRule::link};
}

bool copies_by_node(LlCopies asked, const CopyShape& shape) {
  const std::vector<uint32_t>& sizes = shape.node_sizes;
  if (sizes.size() < 2 || *std::max_element(sizes.begin(), sizes.end()) < 2) return false;
  if (asked != LlCopies::automatic) return asked == LlCopies::node;
  const CopyTimes times = copy_times(shape);
  return times.by_node_us < times.by_rank_us;
}

}  // namespace ucclep
