// SPDX-License-Identifier: Apache-2.0
// Where rows lie in the high-throughput layouts: four ranks, eight experts, and routings whose results the reference's
// own test has worked out by hand.
#include <catch2/catch.hpp>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Ranks 0 and 2 feed experts 0..3, ranks 1 and 3 experts 4..7.
std::vector<int64_t> one_expert(const Scenario&, uint64_t, int rank, int64_t token) {
  return {(4 * rank + token) % 8};
}

// Tokens 0 and 1 stay with one rank, tokens 2 and 3 go to two.
std::vector<int64_t> two_experts(const Scenario&, uint64_t, int, int64_t token) {
  static constexpr int64_t experts[4][2] = {{0, 1}, {2, 3}, {4, 6}, {5, 7}};
  return {experts[token][0], experts[token][1]};
}

Scenario one_choice(Layout layout, int64_t alignment = 1) {
  return {.layout = layout, .top_k = 1, .max_tokens = 4, .hidden = 16, .alignment = alignment, .rule = one_expert};
}

Scenario two_choices(Layout layout, int64_t alignment = 1) {
  return {.layout = layout, .top_k = 2, .max_tokens = 4, .hidden = 16, .alignment = alignment, .rule = two_experts};
}

// What came is sent back as it is: with one expert a token, the result is the token itself.
void return_unchanged(const Scenario& scenario) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    exchange.combine_in.tokens = exchange.tokens_out().get();
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    for (int64_t token = 0; token < scenario.max_tokens; ++token) {
      exchange.combined().fill_row(token, exchange.contents().token(rank.rank, token).data());
    }
    exchange.combined().verify(rank.rank);
  });
}

TEST_CASE("C01 HT flat: rows lie by source rank and token", "[process][reduced]") {
  run(one_choice(Layout::ht_flat));
}

TEST_CASE("C02 HT expert-major: one zone for each expert", "[process][reduced][modes]") {
  run(one_choice(Layout::ht_expert_major));
}

TEST_CASE("C03 HT expert-major: zones are padded with zero rows", "[process]") {
  run(one_choice(Layout::ht_expert_major, 4));
}

TEST_CASE("C04 HT flat: dispatch and combine return a token unchanged", "[process][reduced]") {
  return_unchanged(one_choice(Layout::ht_flat));
}

TEST_CASE("C05 HT expert-major: dispatch and combine return a token unchanged", "[process]") {
  return_unchanged(one_choice(Layout::ht_expert_major));
  return_unchanged(one_choice(Layout::ht_expert_major, 4));
}

TEST_CASE("C06 HT expert-major: counters of aligned zones as int64", "[process]") {
  Scenario scenario = one_choice(Layout::ht_expert_major, 4);
  scenario.counter = ucclEpInt64;
  scenario.offsets_with_total = true;
  run(scenario);
}

// The total through each of its three ways; `expected` is worked out by hand.
void check_total(const Scenario& scenario, int64_t expected) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    int64_t total = -1;
    ok(ucclEpHandleWaitCounts(at.handle, &total, nullptr), "ucclEpHandleWaitCounts");
    require(total == expected, "ucclEpHandleWaitCounts gave " + std::to_string(total));
    at.stream.synchronize();
    require(*exchange.counters().recv_total_host == expected, "recv_total_host");
    exchange.check_counters();
    exchange.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_dispatch();
  });
}

TEST_CASE("C07 HT expert-major: recv_total as int64 includes the padding", "[process]") {
  Scenario scenario = one_choice(Layout::ht_expert_major, 4);
  scenario.counter = ucclEpInt64;
  check_total(scenario, 8);
}

TEST_CASE("C08 HT flat: recv_total as int32 is not padded", "[process][reduced]") {
  check_total(one_choice(Layout::ht_flat), 4);
}

TEST_CASE("C09 HT flat: a token with two experts of one rank is one row", "[process]") {
  run(two_choices(Layout::ht_flat));
}

TEST_CASE("C10 HT expert-major: a token with two experts of one rank is two rows", "[process]") {
  run(two_choices(Layout::ht_expert_major));
}

TEST_CASE("C11 HT expert-major: two choices in zones of four", "[process][reduced]") {
  run(two_choices(Layout::ht_expert_major, 4));
}

TEST_CASE("C12 HT expert-major: copies of a token are the same bytes in every zone", "[process]") {
  Scenario scenario = two_choices(Layout::ht_expert_major);
  scenario.any_bits = true;
  run(scenario);
}

TEST_CASE("C13 HT expert-major: padding of zones of eight is zero in every byte", "[process]") {
  run(two_choices(Layout::ht_expert_major, 8));
}

TEST_CASE("C14 HT flat: every token has one place at each of its ranks", "[process]") {
  for (unsigned seed = 0; seed < seeds(); ++seed) run({.layout = Layout::ht_flat, .top_k = 3, .seed = 140 + seed});
}

TEST_CASE("C15 HT expert-major: every choice has one place", "[process]") {
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    run({.layout = Layout::ht_expert_major, .top_k = 3, .seed = 150 + seed});
  }
}

TEST_CASE("C16 HT expert-major: experts never interleave", "[process]") {
  run({.layout = Layout::ht_expert_major,
       .experts = 32,
       .top_k = 6,
       .max_tokens = 37,
       .rule = uniform(10),
       .seed = 160});
}

TEST_CASE("C17 HT expert-major: zones begin at multiples of every alignment", "[process][reduced]") {
  std::vector<Scenario> scenarios;
  for (const int64_t alignment : {1, 2, 4, 8, 16, 32, 64, 128}) {
    scenarios.push_back({.layout = Layout::ht_expert_major, .top_k = 2, .hidden = 8, .alignment = alignment});
  }
  run_all(scenarios);
}

TEST_CASE("C28 HT flat: a shorter update leaves nothing of the longer one before", "[process][reduced][modes]") {
  const Scenario full{.layout = Layout::ht_flat, .top_k = 1, .max_tokens = 4, .rule = one_expert};
  Scenario one_token = full;
  one_token.tokens = {1, 1, 1, 1};
  one_token.rule = only({0});
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, full);
    round_trip(rank, at.comm, at.handle, at.stream, full);
    round_trip(rank, at.comm, at.handle, at.stream, one_token);
    round_trip(rank, at.comm, at.handle, at.stream, full, 2);
  });
}

}  // namespace
}  // namespace ucclep::test
