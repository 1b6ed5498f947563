// SPDX-License-Identifier: Apache-2.0
// What LL kernels are given.
#pragma once
#include "ucclep/device/deliver.hpp"

namespace ucclep {

// Where rows come in LINE form only, and from few ranks, a warp finds its row in its source's header (ll_headers.hpp).
constexpr uint32_t most_header_ranks = 8, most_header_tokens = 64 * 32, most_header_experts = 2048;
UCCLEP_HD constexpr bool rows_by_headers(const GroupShape& shape) {
  return shape.lines_only() && shape.ranks <= most_header_ranks && shape.ll_tokens <= most_header_tokens &&
         shape.experts <= most_header_experts;
}

// Where the tables of a block of an LL dispatch lie in its shared memory, behind the stages. Larger groups have no
// tables of arrivals: they read the headers where they lie, again for every row.
struct BlockTableLayout {
  uint32_t facts;           // HeaderFacts [R]; before them the token sets
  uint32_t present;         // u64 [R][B / 64 rounded up], where rows are found by headers
  uint32_t tokens, bases;   // u16 [R][B rounded up]; u32 [E]. Without a table the next one begins at the same place
  uint32_t scratch, bytes;  // u32 [most_warps]

  static constexpr uint32_t fact_bytes = 12;
  static constexpr uint32_t most_warps = HandleLayout::most_warps;  // of a block, on any device
  static constexpr uint32_t most_tokens = 8192, most_bases = 2048;
  static_assert(most_header_experts <= most_bases);  // those tables hold what headers say, too

  static constexpr BlockTableLayout of(const GroupShape& shape) {
    const uint64_t tokens = round_up(shape.ll_tokens, 64) * shape.ranks;
    BlockTableLayout at{};
    at.facts = static_cast<uint32_t>(TokenSetShape::of(shape).bytes(shape));
    at.present = at.facts + static_cast<uint32_t>(round_up(fact_bytes * shape.ranks, 16));
    at.tokens = at.present + (rows_by_headers(shape) ? static_cast<uint32_t>(round_up(tokens / 8, 16)) : 0);
    at.bases = at.tokens + (tokens <= most_tokens ? 2 * static_cast<uint32_t>(tokens) : 0);
    at.scratch = at.bases + (shape.experts <= most_bases ? static_cast<uint32_t>(round_up(4 * shape.experts, 16)) : 0);
    at.bytes = at.scratch + 4 * most_warps;
    return at;
  }
};

struct LlDispatchArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  RoutingInput routing;  // of this call, or what the Update left in the handle
  Settings settings;
  RowSource source;
  View topk_weights;  // f32 [T, K] or not given
  DispatchOutput output;
  CounterViews counters;
  BlockTableLayout tables;
  uint32_t piece_bytes;
  bool opened;  // of a second half: the first was a user's kernel
};

struct LlUpdateArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  RoutingInput routing;
};

}  // namespace ucclep
