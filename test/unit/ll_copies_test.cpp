// SPDX-License-Identifier: Apache-2.0
// The rule by which rows of an LL dispatch cross once for each node, or for each rank.
#include "host/context/ll_copies.hpp"

#include <catch2/catch.hpp>

namespace ucclep {
namespace {

constexpr uint64_t row = 14336 + 128;  // 7168 elements of bf16, with the meta line of top-8

CopyShape usual(uint32_t tokens, std::vector<uint32_t> sizes) {
  return {256, 8, tokens, row, std::move(sizes)};
}

TEST_CASE("LL copies: times of a shape that can be counted by hand") {
  // 2 of 4 experts, one on each rank: a rank is wanted by 3 of 6 pairs, a node of two by 5 of 6.
  const CopyTimes times = copy_times({4, 2, 100, 1000, {2, 2}});
  const double bytes = 100 * 1000;
  CHECK(times.by_rank_us == Approx(bytes * 2 * 0.5 / CopyRule::nic));
  CHECK(times.by_node_us ==
        Approx(bytes * 5 / 6 / CopyRule::nic + CopyRule::forward + bytes * 2 * 0.5 / CopyRule::link));
}

TEST_CASE("LL copies: a relay of several ranks counts what all of them send") {
  // In nodes of 1 and 4 every token that wants the other node goes there once, in the small one to its only rank.
  const CopyTimes times = copy_times({5, 1, 10, 1000, {1, 4}});
  const double bytes = 10 * 1000;
  CHECK(times.by_rank_us == Approx(bytes * 4 * 0.2 / CopyRule::nic));
  CHECK(times.by_node_us ==
        Approx(bytes * 4 * 0.2 / CopyRule::nic + CopyRule::forward + bytes * 4 * 0.2 / CopyRule::link));
}

TEST_CASE("LL copies: much crosses once for each node, little for each rank") {
  for (const uint32_t nodes : {2u, 4u, 8u}) {
    const std::vector<uint32_t> sizes(nodes, 8);
    CHECK(copies_by_node(LlCopies::automatic, usual(128, sizes)));
    CHECK_FALSE(copies_by_node(LlCopies::automatic, usual(8, sizes)));
  }
  // A token that wants one expert has one row in any case.
  CHECK_FALSE(copies_by_node(LlCopies::automatic, {256, 1, 4096, row, {8, 8}}));
}

TEST_CASE("LL copies: the rule is forced, where there is a node of several ranks") {
  CHECK(copies_by_node(LlCopies::node, usual(1, {2, 1})));
  CHECK_FALSE(copies_by_node(LlCopies::rank, usual(4096, {8, 8})));
  for (const LlCopies asked : {LlCopies::automatic, LlCopies::rank, LlCopies::node}) {
    CHECK_FALSE(copies_by_node(asked, usual(4096, {1, 1, 1})));
    CHECK_FALSE(copies_by_node(asked, usual(4096, {8})));
  }
}

TEST_CASE("LL copies: more tokens than the smallest number that goes to nodes never go to ranks") {
  for (const auto& sizes : std::vector<std::vector<uint32_t>>{{8, 8}, {4, 4, 4, 4}, {3, 5}, {2, 2}, {16, 16}}) {
    bool by_node = false;
    for (uint32_t tokens = 1; tokens <= 4096; tokens *= 2) {
      const bool now = copies_by_node(LlCopies::automatic, usual(tokens, sizes));
      CHECK((now || !by_node));
      by_node = now;
    }
    CHECK(by_node);
  }
}

}  // namespace
}  // namespace ucclep
