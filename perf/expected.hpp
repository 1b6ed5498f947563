// SPDX-License-Identifier: Apache-2.0
// What must arrive: where each row lies at its receiver, and what a token's combined row is.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "workload.hpp"

namespace ucclep::perf {

struct ExpectedRow {
  int source;
  int token;
  int expert;  // global id where there is a row per expert, else -1
};

// A run of received rows that the library counts: an expert's rows (EXPERT_MAJOR) or a source rank's (the others).
// Row i lies at first + i.
struct Zone {
  int64_t first = 0;
  std::vector<ExpectedRow> rows;
};

// The zones of a receiver: one per local expert, or one per source rank. `capacity` is the B of the group.
std::vector<Zone> expected_zones(const Shape& shape, const Routing& routing, int receiver, int capacity);

// Rows of the received tensors, used or not. In HT EXPERT_MAJOR that depends on the routing: see max_expert_rows.
int64_t tensor_rows(const Shape& shape, int capacity);

// Most rows that any rank receives of this routing, one per (token, expert).
int64_t max_expert_rows(const Shape& shape, const Routing& routing);

// Which part of the token's expert output a row of combine's input is: see row_key.
int output_part(const Shape& shape, const ExpectedRow& row, int receiver);

// A token's combined row by plain arithmetic, in the documented order: the experts of a rank ascending in fp32 (each
// product rounded), rounded to the token type per rank; then the ranks ascending in fp32 (HT over several nodes: per
// node first, rounded, then the nodes); one last rounding.
class CombineReference {
 public:
  // node_of_rank: empty = one node.
  CombineReference(const Shape& shape, const Routing& routing, uint64_t iteration, std::vector<int> node_of_rank = {});
  // The result stays valid until the next call.
  std::span<const std::byte> row(int source, int token);

 private:
  void add_output(int source, int token, int part, float weight, bool first, std::vector<float>& sum);
  void rank_partial(int source, int token, int rank, std::vector<float>& partial);
  void round(std::vector<float>& values);

  const Shape& shape_;
  const Routing& routing_;
  uint64_t iteration_;
  std::vector<int> node_of_rank_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_, partial_, node_sum_, sum_;
};

}  // namespace ucclep::perf
