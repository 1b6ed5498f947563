// SPDX-License-Identifier: Apache-2.0
// Compares what a rank received, or got back, with what the routing of all ranks says: every bit of every row.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "expected.hpp"
#include "workload.hpp"

namespace ucclep::perf {

// Makes device memory readable: returns a pointer to the same bytes, valid until the next call. On the host device that
// is the address itself.
using Reader = std::function<const std::byte*(const void* device, size_t bytes)>;

struct Tally {
  uint64_t verified = 0;  // rows looked at: those expected, and those announced beyond them
  uint64_t wrong = 0;     // of these: wrong in any bit, missing, or too many
  std::string first;      // the first mistake, in words
  void mistake(uint64_t rows, const std::string& message);
  Tally& operator+=(const Tally& other);
};

// One dispatch as a receiver sees it: device addresses of its output tensors (null where it has none), and what the
// library says each zone holds.
struct Received {
  const void* tokens = nullptr;
  const void* scales = nullptr;
  const void* weights = nullptr;   // fp32: per row in EXPERT_MAJOR, else per (row, k)
  const void* topk_idx = nullptr;  // int64 per (row, k), local ids
  const void* src_info = nullptr;  // int64 per row
  std::vector<int64_t> counts;     // per zone
};

Tally verify_dispatch(const Shape& shape, const Routing& routing, uint64_t iteration, int receiver,
                      const std::vector<Zone>& zones, const Received& received, const Reader& read);

// result: device address of [tokens, hidden], the combined rows of rank `source`.
Tally verify_combine(const Shape& shape, const Routing& routing, uint64_t iteration, int source,
                     const std::vector<int>& node_of_rank, const void* result, const Reader& read);

}  // namespace ucclep::perf
