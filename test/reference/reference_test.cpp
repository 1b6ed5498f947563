// SPDX-License-Identifier: Apache-2.0
// The reference against values worked out by hand.
#include "reference/reference.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "reference/numeric.hpp"

namespace ucclep::reference {
namespace {

using Values = std::vector<int64_t>;

// Four ranks with four tokens each, eight experts; token i of rank r has the value 4r + i + 1.
World four_ranks(int k, const std::function<int64_t(int rank, int64_t token, int j)>& expert) {
  World world{4, 8, {}};
  for (int rank = 0; rank < 4; ++rank) {
    Routing routing{4, k, {}, {}};
    for (int64_t token = 0; token < 4; ++token) {
      for (int j = 0; j < k; ++j) {
        routing.experts.push_back(expert(rank, token, j));
        routing.weights.push_back(1.0f);
      }
    }
    world.rank.push_back(routing);
  }
  return world;
}

World one_choice() {
  return four_ranks(1, [](int rank, int64_t token, int) { return (4 * rank + token) % 8; });
}

World two_choices() {
  static constexpr int64_t experts[4][2] = {{0, 1}, {2, 3}, {4, 6}, {5, 7}};
  return four_ranks(2, [](int, int64_t token, int j) { return experts[token][j]; });
}

// The values of the rows of a rank, 0 for padding.
Values rows(const World& world, const Shape& shape, int rank) {
  const Placement placed = placement(world, shape, rank);
  Values values(static_cast<size_t>(placed.total));
  for (const Slot& slot : placed.slots) values[static_cast<size_t>(slot.row)] = 4 * slot.source + slot.token + 1;
  return values;
}

TEST_CASE("reference: flat rows of one choice") {
  const Shape flat{Layout::ht_flat, 4, 1};
  CHECK(rows(one_choice(), flat, 0) == Values{1, 2, 9, 10});
  CHECK(rows(one_choice(), flat, 1) == Values{3, 4, 11, 12});
  CHECK(rows(one_choice(), flat, 2) == Values{5, 6, 13, 14});
  CHECK(rows(one_choice(), flat, 3) == Values{7, 8, 15, 16});
}

TEST_CASE("reference: expert zones and their padding") {
  CHECK(rows(one_choice(), {Layout::ht_expert_major, 4, 1}, 1) == Values{3, 11, 4, 12});
  CHECK(rows(one_choice(), {Layout::ht_expert_major, 4, 4}, 1) == Values{3, 11, 0, 0, 4, 12, 0, 0});
  CHECK(placement(one_choice(), {Layout::ht_expert_major, 4, 4}, 1).padding == Values{2, 3, 6, 7});
  CHECK(rows(two_choices(), {Layout::ht_expert_major, 4, 4}, 2) == Values{3, 7, 11, 15, 4, 8, 12, 16});
}

TEST_CASE("reference: one row for two experts of a rank") {
  CHECK(rows(two_choices(), {Layout::ht_flat, 4, 1}, 0) == Values{1, 5, 9, 13});
  CHECK(rows(two_choices(), {Layout::ht_flat, 4, 1}, 2) == Values{3, 4, 7, 8, 11, 12, 15, 16});
}

TEST_CASE("reference: low-latency rows lie in slabs") {
  const Placement experts = placement(one_choice(), {Layout::ll_expert_major, 5, 1}, 0);
  REQUIRE(experts.slots.size() == 4);
  CHECK(experts.slots[0].row == 0);
  CHECK(experts.slots[1].row == 1);
  CHECK(experts.slots[2].row == 20);  // the slab of expert 1 begins at R * B
  CHECK(experts.slots[3].row == 21);
  const Placement ranks = placement(one_choice(), {Layout::ll_rank_major, 5, 1}, 0);
  REQUIRE(ranks.slots.size() == 4);
  CHECK(ranks.slots[2].source == 2);
  CHECK(ranks.slots[2].row == 10);  // rank 2's zone begins at 2 * B
  CHECK(ranks.total == 4);
}

TEST_CASE("reference: counters") {
  const Counters padded = counters(one_choice(), {Layout::ht_expert_major, 4, 4}, 0);
  CHECK(padded.tokens_per_expert == Values{4, 4});
  CHECK(padded.tokens_per_expert_unpadded == Values{2, 2});
  CHECK(padded.expert_offsets == Values{0, 4, 8});
  CHECK(padded.recv_total == 8);
  CHECK(padded.tokens_per_rank == Values{2, 0, 2, 0});
  CHECK(padded.tokens_per_expert_rank == Values{1, 0, 1, 0, 1, 0, 1, 0});
  const Counters doubled = counters(two_choices(), {Layout::ht_expert_major, 4, 1}, 0);
  CHECK(doubled.recv_total == 8);
  CHECK(doubled.tokens_per_rank == Values{2, 2, 2, 2});  // a row for each of a token's two experts
  CHECK(counters(two_choices(), {Layout::ht_flat, 4, 1}, 0).recv_total == 4);
}

TEST_CASE("reference: a limit drops the last rows, and only tokens_per_expert is cut") {
  const Shape padded{Layout::ht_expert_major, 4, 16, 16};
  const Counters counts = counters(one_choice(), padded, 0);
  CHECK(counts.tokens_per_expert == Values{16, 0});
  CHECK(counts.tokens_per_expert_unpadded == Values{2, 2});
  CHECK(counts.expert_offsets == Values{0, 16, 32});
  CHECK(counts.recv_total == 32);
  CHECK(counters(one_choice(), {Layout::ht_expert_major, 4, 1, 3}, 0).tokens_per_expert == Values{2, 1});
  CHECK(counters(two_choices(), {Layout::ht_flat, 4, 1, 4}, 0).tokens_per_expert == Values{4, 4});
  CHECK(counters(two_choices(), {Layout::ht_flat, 4, 1, 3}, 0).tokens_per_expert == Values{3, 3});
  const Placement all = placement(one_choice(), padded, 0), some = kept(all, 16);
  CHECK(all.slots.size() == 4);
  CHECK(some.slots.size() == 2);
  CHECK(all.padding.size() == 28);
  CHECK(some.padding.size() == 14);
  CHECK(some.total == 32);
}

TEST_CASE("reference: dropped rows are not in sums") {
  const World world = two_choices();
  const auto input = [](int destination, int64_t row, int64_t) { return static_cast<float>(10 * destination + row); };
  CombineProblem problem{&world, {Layout::ht_expert_major, 4, 1}, ucclEpFloat32, 1, input, {}, {}, nullptr};
  CHECK(combine(problem, 0) == std::vector<float>{4, 24, 50, 58});
  problem.kept_rows = {4, 8, 8, 1};
  CHECK(combine(problem, 0) == std::vector<float>{0, 24, 50, 24});
}

TEST_CASE("reference: bad ids and second copies become -1") {
  World world = four_ranks(3, [](int rank, int64_t, int j) { return Values{rank + 6, 2, 2}[static_cast<size_t>(j)]; });
  world = cleaned(world);
  CHECK(world.rank[1].expert(0, 0) == 7);
  CHECK(world.rank[2].expert(0, 0) == -1);  // 8 of 8
  CHECK(world.rank[2].expert(0, 1) == 2);
  CHECK(world.rank[2].expert(0, 2) == -1);
}

TEST_CASE("reference: received entries keep the order of k") {
  const World world =
      cleaned(four_ranks(3, [](int, int64_t, int j) { return Values{3, 6, 2}[static_cast<size_t>(j)]; }));
  const Slot slot{0, 2, 1, -1};
  CHECK(received_experts(world, slot, 1, false) == Values{1, -1, 0});
  CHECK(received_experts(world, slot, 1, true) == Values{3, -1, 2});
  CHECK(received_weights(world, slot, 1) == std::vector<float>{1, 0, 1});
}

TEST_CASE("reference: routing counts") {
  const RoutingCounts counts = routing_counts(two_choices(), 0);
  CHECK(counts.tokens_per_rank == Values{1, 1, 2, 2});
  CHECK(counts.tokens_per_expert == Values(8, 1));
  CHECK(counts.is_token_in_rank == std::vector<uint8_t>{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1});
}

TEST_CASE("reference: combine rounds once for each rank and once at the end") {
  const World world = two_choices();
  const auto input = [](int destination, int64_t, int64_t) { return destination == 0 ? 256.0f : 1.0f; };
  CombineProblem problem{&world, {Layout::ht_expert_major, 4, 1}, ucclEpBfloat16, 1, input, {}, {}, nullptr};
  CHECK(combine(problem, 0) == std::vector<float>{512, 2, 2, 2});
  // Neighbours of 512 in bf16 are 4 apart: two biases below half of it count together only if nothing is rounded
  // between.
  problem.biases.push_back([](int64_t, int64_t) { return 1.5f; });
  CHECK(combine(problem, 0)[0] == 512.0f);
  problem.biases.push_back([](int64_t, int64_t) { return 1.0f; });
  CHECK(combine(problem, 0)[0] == 516.0f);
}

TEST_CASE("reference: weights apply in low-latency expert-major only") {
  const World world = two_choices();
  Routing weights = world.rank[0];
  weights.weights = {0.5f, 0.25f, 1, 1, 1, 1, 1, 1};
  const auto input = [](int, int64_t, int64_t) { return 8.0f; };
  CombineProblem problem{&world, {Layout::ll_expert_major, 4, 1}, ucclEpFloat32, 1, input, {}, {}, &weights};
  CHECK(combine(problem, 0) == std::vector<float>{6, 16, 16, 16});
  problem.shape.layout = Layout::ll_rank_major;
  CHECK(combine(problem, 0) == std::vector<float>{8, 8, 16, 16});
}

TEST_CASE("reference: formats") {
  CHECK(encode(bf16, 1.0) == 0x3f80);
  CHECK(encode(bf16, 1.0 + 1.0 / 256) == 0x3f80);  // a tie, to even
  CHECK(encode(bf16, 1.0 + 3.0 / 256) == 0x3f82);
  CHECK(encode(bf16, std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(encode(fp16, 65504.0) == 0x7bff);
  CHECK(encode(fp16, 65519.0) == 0x7bff);
  CHECK(encode(fp16, 65520.0) == 0x7c00);
  CHECK(encode(fp16, std::ldexp(1.0, -24)) == 1);
  CHECK(encode(fp16, std::ldexp(1.0, -25)) == 0);
  CHECK(encode(e4m3, 1.0) == 0x38);
  CHECK(encode(e4m3, -448.0) == 0xfe);
  CHECK(encode(e4m3, 1e9) == 0x7e);
  CHECK(encode(e4m3, std::ldexp(1.0, -9)) == 1);
  CHECK(std::isnan(decode(e4m3, 0x7f)));
  for (const Format& format : {bf16, fp16, e4m3}) {
    const uint32_t codes = 1u << (1 + format.exponent + format.mantissa);
    uint32_t wrong = 0;
    for (uint32_t bits = 0; bits < codes; ++bits) {
      const double value = decode(format, bits);
      if (!std::isnan(value) && encode(format, value) != bits) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("reference: fp8 blocks") {
  const std::vector<float> values{448.0f, -1.0f, 0.0f, 17.0f};
  const Quantized exact = quantize_block(values, false);
  CHECK(exact.scale == 1.0f);
  CHECK(exact.values == std::vector<uint8_t>{0x7e, 0xb8, 0x00, 0x58});  // 17 is a tie between 16 and 18
  const Quantized rounded_up = quantize_block(std::vector<float>{449.0f}, true);
  CHECK(rounded_up.scale == 2.0f);
  CHECK(rounded_up.exponent == 128);
  CHECK(quantize_block(std::vector<float>{0.0f}, false).scale == 1e-4f / 448.0f);
}

}  // namespace
}  // namespace ucclep::reference
