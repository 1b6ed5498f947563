// SPDX-License-Identifier: Apache-2.0
// What the ranks send: routing, weights and rows are pure functions of the seed, so that every rank can compute what
// every other rank sends, and what must arrive.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

struct Shape {
  int ranks = 1;
  int experts = 1;
  int topk = 1;
  int hidden = 0;
  int mode = UCCLEP_MODE_LL;
  int layout = UCCLEP_LAYOUT_EXPERT_MAJOR;
  ucclEpDataType_t dtype = ucclEpBfloat16;
  bool quant = false;  // bf16 is dispatched as fp8 with fp32 scales
  double skew = 0;     // rank 0 is chosen so many times as often as the average rank; 0 = uniform
  uint64_t seed = 1;
  bool returns_tokens = false;  // experts return the rows that they receive; else what the seed says

  int local_experts() const { return experts / ranks; }
  int rank_of(int expert) const { return expert / local_experts(); }
  // One row per (token, expert); else one per (token, destination rank).
  bool per_expert() const { return layout == UCCLEP_LAYOUT_EXPERT_MAJOR; }
  ucclEpDataType_t received_dtype() const { return quant ? ucclEpFloat8e4m3 : dtype; }
  // fp8 rows have fp32 scales, and what the experts return is bf16.
  ucclEpDataType_t combine_dtype() const { return dtype == ucclEpFloat8e4m3 ? ucclEpBfloat16 : dtype; }
  int scales() const { return received_dtype() == ucclEpFloat8e4m3 ? hidden / 128 : 0; }
  size_t input_row_bytes() const;  // of dispatch, as the caller gives it
  size_t row_bytes() const;        // of dispatch, as it arrives, without scales
  size_t wire_row_bytes() const;   // of dispatch, with scales
  size_t combine_row_bytes() const;
};

// The choices of all ranks for one iteration.
class Routing {
 public:
  Routing(int ranks, int tokens, int topk);
  int tokens() const { return tokens_; }
  int topk() const { return topk_; }
  int32_t* experts(int rank, int token) { return experts_.data() + index(rank, token); }
  const int32_t* experts(int rank, int token) const { return experts_.data() + index(rank, token); }
  float* weights(int rank, int token) { return weights_.data() + index(rank, token); }
  const float* weights(int rank, int token) const { return weights_.data() + index(rank, token); }

 private:
  size_t index(int rank, int token) const { return (static_cast<size_t>(rank) * tokens_ + token) * topk_; }
  int tokens_, topk_;
  std::vector<int32_t> experts_;  // [rank, token, k], global ids, distinct in a row
  std::vector<float> weights_;    // [rank, token, k], in [0.125, 1)
};

// iteration: any number that no other iteration of the run has.
Routing make_routing(const Shape& shape, int tokens, uint64_t iteration);

// The three kinds of data. `part` tells the copies of a token's row apart: for combine's input the expert, or the
// expert's rank where a layout has one row per rank; 0 for the others.
enum class Kind : uint64_t { tokens = 1, scales = 2, expert_output = 3 };
uint64_t row_key(const Shape& shape, uint64_t iteration, Kind kind, int rank, int token, int part = 0);

// Fills a row with values of its key: random signs and mantissas, magnitudes from 1/128 to 2, never zero or NaN (fp8:
// any byte, since those are only forwarded). bytes is a multiple of 8, except for scales.
void fill_row(ucclEpDataType_t dtype, uint64_t key, std::byte* out, size_t bytes);

// What a receiver has of a token's row and of its scales: as they were filled, or quantised.
void received_row(const Shape& shape, uint64_t iteration, int rank, int token, std::byte* row, std::byte* scales);

// Rows that the operation moves in an iteration, all ranks together.
struct Traffic {
  uint64_t remote = 0;      // one per (token, other rank)
  uint64_t distinct = 0;    // one per (token, rank)
  uint64_t selections = 0;  // one per (token, expert)
  Traffic& operator+=(const Traffic& other);
};
Traffic count_traffic(const Shape& shape, const Routing& routing);

// A part of a timed thing that moves rows: "dispatch" or "combine".
struct Part {
  std::string operation;
  size_t row_bytes;      // scales included
  bool by_node = false;  // a row crosses once for each node that wants it, or has a part in it, not for each rank
};

// Rows that cross nodes in an iteration, all ranks together.
struct Crossing {
  uint64_t to_ranks = 0;  // one per (token, rank of another node)
  uint64_t to_nodes = 0;  // one per (token, other node)
  uint64_t pieces = 0;    // of 32 KiB, of what each rank has for each other node, or for each of its ranks
  Crossing& operator+=(const Crossing& other);
};
// node_of_rank: numbers from 0 on.
Crossing count_crossing(const Shape& shape, const Routing& routing, const std::vector<Part>& parts,
                        const std::vector<int>& node_of_rank);

}  // namespace ucclep::perf
