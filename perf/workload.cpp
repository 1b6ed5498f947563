// SPDX-License-Identifier: Apache-2.0
#include "workload.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "numeric.hpp"

namespace ucclep::perf {
namespace {

// A bijection of 64-bit words whose output bits all depend on all input bits (Stafford's mix 13).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t golden = 0x9e3779b97f4a7c15;

class Random {
 public:
  explicit Random(uint64_t key) : state_(key) {}
  uint64_t next() { return mix(state_ += golden); }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_;
};

// Draws the experts of a token without replacement: uniformly, or so that rank 0 is chosen skew times as often as the
// average rank.
class ExpertChooser {
 public:
  explicit ExpertChooser(const Shape& shape) : shape_(shape) {}

  void choose(Random& random, int32_t* out) const {
    const int local = shape_.local_experts(), topk = shape_.topk;
    if (shape_.skew == 0) return draw(random, {0, shape_.experts}, out, topk);
    int hot = 0;
    for (int k = 0; k < topk; ++k) hot += random.uniform() * shape_.ranks < shape_.skew;
    hot = std::clamp(hot, std::max(0, topk - (shape_.experts - local)), std::min(topk, local));
    draw(random, {0, local}, out, hot);
    draw(random, {local, shape_.experts}, out + hot, topk - hot);
  }

 private:
  struct Range {
    int begin, end;
  };

  // Repeated draws are rejected. When that gets hopeless, because nearly all experts are taken, the first free ones
  // are, so that the time is bounded.
  void draw(Random& random, Range range, int32_t* out, int count) const {
    const auto taken_with = [out](int chosen, int32_t expert) {
      if (std::find(out, out + chosen, expert) == out + chosen) out[chosen++] = expert;
      return chosen;
    };
    int chosen = 0;
    for (int attempt = 0; chosen < count && attempt < 16 * shape_.topk; ++attempt) {
      chosen = taken_with(chosen, range.begin + static_cast<int32_t>(random.uniform() * (range.end - range.begin)));
    }
    for (int32_t expert = range.begin; chosen < count; ++expert) chosen = taken_with(chosen, expert);
  }

  const Shape& shape_;
};

// Bits of a 64-bit word that stay random, and bits that are set, so that each element has a moderate exponent.
struct Pattern {
  uint64_t keep, set;
};

Pattern pattern_of(ucclEpDataType_t dtype) {
  switch (dtype) {
    case ucclEpBfloat16:  // exponents 120..127
      return {0x83ff83ff83ff83ff, 0x3c003c003c003c00};
    case ucclEpFloat16:  // exponents 12..15
      return {0x8fff8fff8fff8fff, 0x3000300030003000};
    case ucclEpFloat32:  // exponents 120..127
      return {0x83ffffff83ffffff, 0x3c0000003c000000};
    default:
      return {~uint64_t{0}, 0};
  }
}

}  // namespace

size_t Shape::input_row_bytes() const {
  return hidden * element_bytes(dtype);
}
size_t Shape::row_bytes() const {
  return hidden * element_bytes(received_dtype());
}
size_t Shape::wire_row_bytes() const {
  return row_bytes() + scales() * sizeof(float);
}
size_t Shape::combine_row_bytes() const {
  return hidden * element_bytes(combine_dtype());
}

Routing::Routing(int ranks, int tokens, int topk) : tokens_(tokens), topk_(topk) {
  experts_.resize(static_cast<size_t>(ranks) * tokens * topk);
  weights_.resize(experts_.size());
}

Routing make_routing(const Shape& shape, int tokens, uint64_t iteration) {
  Routing routing(shape.ranks, tokens, shape.topk);
  const ExpertChooser chooser(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Random random(mix(mix(shape.seed) + iteration) + mix(rank + 1));
    for (int token = 0; token < tokens; ++token) {
      chooser.choose(random, routing.experts(rank, token));
      float* weights = routing.weights(rank, token);
      for (int k = 0; k < shape.topk; ++k) weights[k] = static_cast<float>(0.125 + 0.875 * random.uniform());
    }
  }
  return routing;
}

uint64_t row_key(const Shape& shape, uint64_t iteration, Kind kind, int rank, int token, int part) {
  uint64_t key = mix(shape.seed + golden);
  for (uint64_t word : {iteration, static_cast<uint64_t>(kind), static_cast<uint64_t>(rank),
                        static_cast<uint64_t>(token), static_cast<uint64_t>(part)}) {
    key = mix(key + golden * (word + 1));
  }
  return key;
}

void fill_row(ucclEpDataType_t dtype, uint64_t key, std::byte* out, size_t bytes) {
  const Pattern pattern = pattern_of(dtype);
  // A weaker mix than above: one multiplication a word, as this fills gigabytes.
  const auto word = [&](uint64_t i) {
    uint64_t x = key + golden * i;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    return ((x ^ (x >> 32)) & pattern.keep) | pattern.set;
  };
  const size_t words = bytes / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t value = word(i);
    std::memcpy(out + 8 * i, &value, 8);
  }
  if (bytes % 8 == 0) return;
  const uint64_t last = word(words);
  std::memcpy(out + 8 * words, &last, bytes % 8);
}

void received_row(const Shape& shape, uint64_t iteration, int rank, int token, std::byte* row, std::byte* scales) {
  const uint64_t key = row_key(shape, iteration, Kind::tokens, rank, token);
  if (!shape.quant) {
    fill_row(shape.dtype, key, row, shape.row_bytes());
    fill_row(ucclEpFloat32, row_key(shape, iteration, Kind::scales, rank, token), scales,
             shape.scales() * sizeof(float));
    return;
  }
  constexpr int group = 128;
  std::vector<std::byte> bytes(shape.input_row_bytes());
  std::vector<float> values(shape.hidden);
  fill_row(shape.dtype, key, bytes.data(), bytes.size());
  decode_row(shape.dtype, bytes.data(), values.size(), values.data());
  for (int g = 0; g < shape.scales(); ++g) {
    const float* x = &values[g * group];
    float largest = 1e-4f;
    for (int i = 0; i < group; ++i) largest = std::max(largest, std::abs(x[i]));
    const float scale = largest / 448.0f;
    const float factor = 448.0f / largest;
    std::memcpy(scales + g * sizeof(float), &scale, sizeof scale);
    for (int i = 0; i < group; ++i) row[g * group + i] = static_cast<std::byte>(to_e4m3(x[i] * factor));
  }
}

Traffic& Traffic::operator+=(const Traffic& other) {
  remote += other.remote;
  distinct += other.distinct;
  selections += other.selections;
  return *this;
}

Traffic count_traffic(const Shape& shape, const Routing& routing) {
  Traffic traffic;
  std::vector<bool> reached(shape.ranks);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (int token = 0; token < routing.tokens(); ++token) {
      std::fill(reached.begin(), reached.end(), false);
      const int32_t* experts = routing.experts(rank, token);
      for (int k = 0; k < shape.topk; ++k) reached[shape.rank_of(experts[k])] = true;
      const auto distinct = static_cast<uint64_t>(std::count(reached.begin(), reached.end(), true));
      traffic += {distinct - (reached[rank] ? 1 : 0), distinct, static_cast<uint64_t>(shape.topk)};
    }
  }
  return traffic;
}

Crossing& Crossing::operator+=(const Crossing& other) {
  to_ranks += other.to_ranks;
  to_nodes += other.to_nodes;
  pieces += other.pieces;
  return *this;
}

Crossing count_crossing(const Shape& shape, const Routing& routing, const std::vector<Part>& parts,
                        const std::vector<int>& node_of_rank) {
  constexpr size_t piece = 32 * 1024;
  Crossing crossing;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::vector<size_t> to_rank(shape.ranks), to_node(shape.ranks);
    for (int token = 0; token < routing.tokens(); ++token) {
      std::set<int> ranks, nodes;
      const int32_t* experts = routing.experts(rank, token);
      for (int k = 0; k < shape.topk; ++k) {
        const int other = shape.rank_of(experts[k]);
        if (node_of_rank[other] == node_of_rank[rank]) continue;
        ranks.insert(other);
        nodes.insert(node_of_rank[other]);
      }
      for (const int other : ranks) ++to_rank[other];
      for (const int other : nodes) ++to_node[other];
      crossing.to_ranks += ranks.size();
      crossing.to_nodes += nodes.size();
    }
    for (const Part& part : parts) {
      for (const size_t count : part.by_node ? to_node : to_rank) {
        crossing.pieces += (count * part.row_bytes + piece - 1) / piece;
      }
    }
  }
  return crossing;
}

}  // namespace ucclep::perf
