// SPDX-License-Identifier: Apache-2.0
#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ucclep::perf {
namespace {

// Rows are fetched in portions of about this many bytes.
constexpr size_t portion_bytes = 4 << 20;

// Where two runs of bytes first differ, in words; empty if they are equal.
std::string difference(const char* what, const std::byte* got, const std::byte* expected, size_t bytes) {
  if (std::memcmp(got, expected, bytes) == 0) return {};
  const size_t at = std::mismatch(got, got + bytes, expected).first - got;
  return fmt::format("byte {} of its {} is 0x{:02x}, expected 0x{:02x}", at, what, static_cast<unsigned>(got[at]),
                     static_cast<unsigned>(expected[at]));
}

template <class T>
T load(const std::byte* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

class DispatchChecker {
 public:
  DispatchChecker(const Shape& shape, const Routing& routing, uint64_t iteration, int receiver,
                  const Received& received, const Reader& read)
      : shape_(shape), routing_(routing), iteration_(iteration), receiver_(receiver), received_(received), read_(read) {
    expected_.resize(shape.row_bytes());
    expected_scales_.resize(shape.scales() * sizeof(float));
  }

  void check(size_t index, const Zone& zone, Tally& tally) {
    const int64_t expected = static_cast<int64_t>(zone.rows.size());
    const int64_t announced = received_.counts.at(index);
    const int64_t present = std::clamp<int64_t>(announced, 0, expected);
    tally.verified += expected;
    if (announced > expected) {
      const uint64_t extra = announced - expected;
      tally.verified += extra;
      tally.mistake(extra, fmt::format("{} {} rows too many", zone_name(index), extra));
    } else if (announced < expected) {
      tally.mistake(expected - present,
                    fmt::format("{} {} rows announced, expected {}", zone_name(index), announced, expected));
    }
    const auto portion = static_cast<int64_t>(std::max<size_t>(1, portion_bytes / shape_.row_bytes()));
    for (int64_t begin = 0; begin < present; begin += portion) {
      check_portion(index, zone, begin, std::min(present, begin + portion), tally);
    }
  }

 private:
  std::string zone_name(size_t index) const {
    return shape_.per_expert() ? fmt::format("expert {}:", receiver_ * shape_.local_experts() + index)
                               : fmt::format("from rank {}:", index);
  }

  // Each tensor in turn, as a reader may hold one portion only. A row that is wrong in several is wrong once.
  void check_portion(size_t index, const Zone& zone, int64_t begin, int64_t end, Tally& tally) {
    bad_.assign(end - begin, false);
    const auto each = [&](const void* base, size_t row_bytes, auto&& problem) {
      if (base == nullptr) return;
      const auto* start = static_cast<const std::byte*>(base) + (zone.first + begin) * row_bytes;
      const std::byte* data = read_(start, (end - begin) * row_bytes);
      for (int64_t i = begin; i < end; ++i) {
        if (bad_[i - begin]) continue;
        const ExpectedRow& row = zone.rows[i];
        const std::string text = problem(row, data + (i - begin) * row_bytes);
        if (text.empty()) continue;
        bad_[i - begin] = true;
        tally.mistake(
            1, fmt::format("{} row {} (token {} of rank {}): {}", zone_name(index), i, row.token, row.source, text));
      }
    };
    each(received_.tokens, shape_.row_bytes(), [&](const ExpectedRow& row, const std::byte* data) {
      fill_expected(row);
      return difference("data", data, expected_.data(), shape_.row_bytes());
    });
    each(received_.scales, shape_.scales() * sizeof(float), [&](const ExpectedRow& row, const std::byte* data) {
      fill_expected(row);
      return difference("scales", data, expected_scales_.data(), expected_scales_.size());
    });
    each(received_.src_info, sizeof(int64_t), [&](const ExpectedRow& row, const std::byte* data) {
      const int64_t expected = (static_cast<int64_t>(row.source) << 32) | row.token;
      const int64_t got = load<int64_t>(data, 0);
      return got == expected ? std::string() : fmt::format("src_info is {:#x}, expected {:#x}", got, expected);
    });
    const size_t entries = shape_.per_expert() ? 1 : shape_.topk;
    each(received_.topk_idx, entries * sizeof(int64_t),
         [&](const ExpectedRow& row, const std::byte* data) { return index_problem(row, data); });
    each(received_.weights, entries * sizeof(float),
         [&](const ExpectedRow& row, const std::byte* data) { return weight_problem(row, data); });
  }

  void fill_expected(const ExpectedRow& row) {
    received_row(shape_, iteration_, row.source, row.token, expected_.data(), expected_scales_.data());
  }

  std::string index_problem(const ExpectedRow& row, const std::byte* data) const {
    const int32_t* experts = routing_.experts(row.source, row.token);
    for (int k = 0; k < shape_.topk; ++k) {
      const bool mine = shape_.rank_of(experts[k]) == receiver_;
      const int64_t expected = mine ? experts[k] - receiver_ * shape_.local_experts() : -1;
      const int64_t got = load<int64_t>(data, k);
      if (got != expected) return fmt::format("topk_idx[{}] is {}, expected {}", k, got, expected);
    }
    return {};
  }

  std::string weight_problem(const ExpectedRow& row, const std::byte* data) const {
    const int32_t* experts = routing_.experts(row.source, row.token);
    const float* weights = routing_.weights(row.source, row.token);
    for (int k = 0; k < shape_.topk; ++k) {
      if (shape_.per_expert() && experts[k] != row.expert) continue;
      const float expected = shape_.rank_of(experts[k]) == receiver_ ? weights[k] : 0.0f;
      const float got = load<float>(data, shape_.per_expert() ? 0 : k);
      if (std::memcmp(&got, &expected, sizeof got) != 0) {
        return fmt::format("weight of expert {} is {}, expected {}", experts[k], got, expected);
      }
    }
    return {};
  }

  const Shape& shape_;
  const Routing& routing_;
  uint64_t iteration_;
  int receiver_;
  const Received& received_;
  const Reader& read_;
  std::vector<std::byte> expected_, expected_scales_;
  std::vector<bool> bad_;
};

}  // namespace

void Tally::mistake(uint64_t rows, const std::string& message) {
  wrong += rows;
  if (first.empty()) first = message;
}

Tally& Tally::operator+=(const Tally& other) {
  verified += other.verified;
  wrong += other.wrong;
  if (first.empty()) first = other.first;
  return *this;
}

Tally verify_dispatch(const Shape& shape, const Routing& routing, uint64_t iteration, int receiver,
                      const std::vector<Zone>& zones, const Received& received, const Reader& read) {
  Tally tally;
  DispatchChecker checker(shape, routing, iteration, receiver, received, read);
  for (size_t z = 0; z < zones.size(); ++z) checker.check(z, zones[z], tally);
  return tally;
}

Tally verify_combine(const Shape& shape, const Routing& routing, uint64_t iteration, int source,
                     const std::vector<int>& node_of_rank, const void* result, const Reader& read) {
  Tally tally;
  CombineReference reference(shape, routing, iteration, node_of_rank);
  const size_t bytes = shape.combine_row_bytes();
  const int portion = static_cast<int>(std::max<size_t>(1, portion_bytes / bytes));
  for (int begin = 0; begin < routing.tokens(); begin += portion) {
    const int end = std::min(routing.tokens(), begin + portion);
    const std::byte* data = read(static_cast<const std::byte*>(result) + begin * bytes, (end - begin) * bytes);
    for (int token = begin; token < end; ++token) {
      ++tally.verified;
      const std::string text =
          difference("sum", data + (token - begin) * bytes, reference.row(source, token).data(), bytes);
      if (!text.empty()) tally.mistake(1, fmt::format("combined token {}: {}", token, text));
    }
  }
  return tally;
}

}  // namespace ucclep::perf
