// SPDX-License-Identifier: Apache-2.0
// HT operations with more tokens than a slot has room for: they run in rounds, and nobody sees it.
#include <catch2/catch.hpp>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// In both layouts of HT.
std::vector<Scenario> in_ht(Scenario scenario) {
  scenario.layout = Layout::ht_flat;
  std::vector<Scenario> both{scenario};
  scenario.layout = Layout::ht_expert_major;
  scenario.alignment = 4;
  both.push_back(scenario);
  return both;
}

// Ranks with many tokens, few and none; rounds that are full, and one that is not.
const Scenario many{.ranks = 4,
                    .experts = 8,
                    .top_k = 3,
                    .max_tokens = 61,
                    .round = 9,
                    .tokens = {61, 0, 20, 54},
                    .hidden = 96,
                    .biases = 1,
                    .rule = uniform(10)};

TEST_CASE("C90 an HT operation with more tokens than a round has runs in rounds", "[process][reduced][modes]") {
  run_each(in_ht(many), round_trip, 2);
}

}  // namespace
}  // namespace ucclep::test
