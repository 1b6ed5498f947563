// SPDX-License-Identifier: Apache-2.0
// Dispatch and combine in every layout: with regular routing as the peers test it, and with random routing.
#include <catch2/catch.hpp>

#include <algorithm>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

Scenario to_next_rank(Layout layout) {
  return {.layout = layout, .experts = 16, .top_k = 4, .max_tokens = 16, .rule = next_rank()};
}

Scenario random_world(Layout layout, unsigned seed) {
  return {.layout = layout,
          .experts = 32,
          .top_k = 5,
          .max_tokens = 19,
          .hidden = 72,
          .rule = uniform(),
          .seed = 400 + seed};
}

void try_seeds(Layout layout) {
  for (unsigned seed = 0; seed < seeds(); ++seed) run(random_world(layout, seed), 2);
}

TEST_CASE("C32 LL expert-major: all tokens of a rank go to the next one", "[process][reduced]") {
  run(to_next_rank(Layout::ll_expert_major), 2);
}

TEST_CASE("C32 LL rank-major: all tokens of a rank go to the next one", "[process]") {
  run(to_next_rank(Layout::ll_rank_major), 2);
}

TEST_CASE("C34 HT flat: all tokens of a rank go to the next one", "[process][reduced][nodes]") {
  run(to_next_rank(Layout::ht_flat), 2);
}

TEST_CASE("C35 HT expert-major: all tokens of a rank go to the next one", "[process]") {
  run(to_next_rank(Layout::ht_expert_major), 2);
}

TEST_CASE("C40 LL expert-major: random routing", "[process][reduced][driver][nodes][modes]") {
  try_seeds(Layout::ll_expert_major);
}
TEST_CASE("C41 LL rank-major: random routing", "[process][reduced][driver][nodes][modes]") {
  try_seeds(Layout::ll_rank_major);
}
TEST_CASE("C42 HT flat: random routing", "[process][reduced][driver][nodes][modes]") {
  try_seeds(Layout::ht_flat);
}
TEST_CASE("C43 HT expert-major: random routing with aligned zones", "[process][reduced][driver][nodes][modes]") {
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    Scenario scenario = random_world(Layout::ht_expert_major, seed);
    scenario.alignment = 8;
    run(scenario, 2);
  }
}

TEST_CASE("C44 combine: sums in fp32 follow one order in every layout", "[process][reduced][nodes][modes]") {
  // fp32 rows show every change of the order; many experts a token make many terms.
  run_all(in_all_layouts({.experts = 16,
                          .top_k = 12,
                          .max_tokens = 9,
                          .dtype = ucclEpFloat32,
                          .combine_dtype = ucclEpFloat32,
                          .rule = uniform(),
                          .seed = 44}));
}

TEST_CASE("C44 combine: bf16 and fp16 are rounded once for each rank", "[process][nodes]") {
  std::vector<Scenario> scenarios;
  for (const ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16}) {
    for (const Scenario& scenario :
         in_all_layouts({.experts = 16, .top_k = 12, .max_tokens = 9, .dtype = dtype, .combine_dtype = dtype})) {
      scenarios.push_back(scenario);
    }
  }
  run_all(scenarios);
}

TEST_CASE("C45 dropped entries: one in ten of every row is -1", "[process][reduced][nodes]") {
  run_all(in_all_layouts({.experts = 16, .top_k = 6, .max_tokens = 24, .rule = uniform(10), .seed = 45}));
}

TEST_CASE("C45 dropped entries: most are -1, whole tokens among them", "[process][nodes]") {
  run_all(in_all_layouts({.experts = 16, .top_k = 3, .max_tokens = 24, .biases = 1, .rule = uniform(80), .seed = 46}));
}

TEST_CASE("C46 tokens differ between ranks: all, some, one and none", "[process][reduced][driver][nodes][modes]") {
  run_all(in_all_layouts({.experts = 16, .top_k = 4, .max_tokens = 20, .tokens = {20, 7, 1, 0}, .seed = 46}));
}

TEST_CASE("C46 tokens differ between updates of one handle", "[process][nodes]") {
  for (const Layout layout : all_layouts) {
    const Scenario first{.layout = layout, .max_tokens = 12, .tokens = {12, 0, 5, 3}};
    Scenario second = first;
    second.tokens = {0, 12, 1, 12};
    Scenario third = first;
    third.tokens = {0, 0, 0, 0};
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, first);
      uint64_t seed = 0;
      for (const Scenario& scenario : {first, second, third, first, third, second}) {
        round_trip(rank, at.comm, at.handle, at.stream, scenario, ++seed);
      }
    });
  }
}

TEST_CASE("every world from one rank to eight", "[process]") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    if (shares_gpus(ranks)) continue;
    Scenario scenario{.ranks = ranks, .experts = 2 * ranks, .top_k = 2, .max_tokens = 5, .hidden = 32};
    run_all(in_all_layouts(scenario));
  }
}

TEST_CASE("no rank has a token", "[process][reduced][nodes]") {
  run_all(in_all_layouts({.max_tokens = 4, .tokens = {0, 0, 0, 0}}));
}

TEST_CASE("all tokens choose nothing", "[process][nodes]") {
  run_all(in_all_layouts({.max_tokens = 6, .biases = 2, .rule = only({-1, -1})}));
}

TEST_CASE("all tokens of all ranks go to one expert", "[process][reduced]") {
  run_all(in_all_layouts({.top_k = 1, .max_tokens = 33, .hidden = 24, .rule = only({5})}));
}

TEST_CASE("ranks that receive nothing", "[process]") {
  run_all(in_all_layouts({.top_k = 2, .max_tokens = 9, .rule = only({0, 1})}));
}

TEST_CASE("all experts are on other ranks than the token", "[process]") {
  run_all(in_all_layouts({.ranks = 2, .experts = 6, .top_k = 3, .max_tokens = 6, .rule = next_rank()}));
}

TEST_CASE("every number of choices from 1 to 32", "[process]") {
  std::vector<Scenario> scenarios;
  for (int top_k = 1; top_k <= 32; top_k += reduced() ? 7 : 1) {
    const Layout layout = all_layouts[top_k % std::size(all_layouts)];
    scenarios.push_back({.layout = layout, .ranks = 2, .experts = 32, .top_k = top_k, .max_tokens = 5, .hidden = 16});
  }
  run_all(scenarios);
}

TEST_CASE("32 choices in every layout", "[process][reduced][nodes][modes]") {
  run_all(in_all_layouts({.experts = 64, .top_k = 32, .max_tokens = 5, .hidden = 16}));
}

TEST_CASE("fewer choices than the group allows", "[process]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario{.layout = layout, .experts = 16, .top_k = 3};
    run_ranks(4, [&](Rank& rank) {
      Comm comm(rank);
      ucclEpGroupConfig_t config = group_config({scenario});
      config.top_k = 8;
      Group group = make_group(comm, config);
      Handle handle = make_handle(group, handle_config(scenario));
      Stream stream(comm);
      round_trip(rank, comm, handle, stream, scenario);
    });
  }
}

TEST_CASE("896 experts", "[process][nodes]") {
  run_all(in_all_layouts({.ranks = 4, .experts = 896, .top_k = 8, .max_tokens = 7, .hidden = 16}));
}

TEST_CASE("experts of a rank: one, and numbers that are no power of two", "[process]") {
  for (const int experts : {3, 15, 39}) {
    run_all(in_all_layouts({.ranks = 3, .experts = experts, .top_k = 3, .max_tokens = 11, .hidden = 16}));
  }
}

TEST_CASE("token counts around the widths of warps and blocks", "[process]") {
  std::vector<Scenario> scenarios;
  for (const int tokens : {1, 31, 32, 33, 63, 64, 65, 127, 129}) {
    scenarios.push_back({.layout = all_layouts[scenarios.size() % std::size(all_layouts)],
                         .ranks = 2,
                         .experts = 4,
                         .max_tokens = tokens,
                         .hidden = 16});
  }
  run_all(scenarios);
}

TEST_CASE("512, 513 and 1025 tokens in LL", "[process][slow]") {
  std::vector<Scenario> scenarios;
  for (const int tokens : {512, 513, 1025}) {
    for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
      scenarios.push_back({.layout = layout, .ranks = 2, .experts = 4, .max_tokens = tokens, .hidden = 8});
    }
  }
  run_all(scenarios);
}

// Tables of an LL dispatch that hold a part of the tokens, a part of the experts, or nothing at all: the rest is read
// where it lies, or counted in rounds. In LINE form, and in BULK.
TEST_CASE("LL with more experts and tokens than a block's tables hold", "[process][slow]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
    Scenario few{.layout = layout, .ranks = 2, .experts = 2400, .top_k = 4, .max_tokens = 70, .hidden = 8};
    few.tokens = {70, 65};
    Scenario many = few;
    many.max_tokens = 300;
    many.tokens = {300, 129};
    Scenario wide = few;
    wide.experts = 4000;
    Scenario wide_and_many = many;
    wide_and_many.experts = 4000;
    Scenario long_lists{.layout = layout, .ranks = 2, .experts = 4, .ll_max_tokens = 4200, .hidden = 8};
    long_lists.tokens = {70, 0};
    run_all({few, many});
    run_all({wide, wide_and_many});
    run(long_lists);
  }
}

// So few and small that all of them are lines on the host device, too, among ranks so few that they are found by
// headers. (Of more tokens than a word has bits: ../device/header_rows_test.cpp, and on GPUs.)
TEST_CASE("LL rows that are found by headers", "[process][reduced][modes]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
    for (const std::vector<int64_t>& tokens : {std::vector<int64_t>{7, 5, 6}, {1, 5, 0}}) {
      Scenario scenario{.layout = layout, .ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 7, .hidden = 16};
      scenario.tokens = tokens;
      run(scenario);
      scenario.hidden = 128;
      scenario.scales = Scales{};
      scenario.quant = UCCLEP_QUANT_FP8_128;
      scenario.carried = true;
      run(scenario);
    }
  }
}

// A rank with so few tokens combines batch by batch (ll/combine_small.hpp), and its peers, which have more, as ever;
// rows have more copies on a rank than a warp reads at once, and two batches, the last not full. There are so few that
// the host device has all of them as lines.
TEST_CASE("LL combine of a small batch, and of more from peers", "[process][reduced][modes]") {
  struct Size {
    int64_t hidden;
    std::vector<int64_t> tokens;
  };
  for (const ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32}) {
    for (const Size& size : {Size{8, {4, 3}}, Size{8, {1, 6}}, Size{8, {0, 2}}, Size{520, {2, 1}}}) {
      run({.layout = Layout::ll_expert_major,
           .ranks = 2,
           .experts = 20,
           .top_k = 10,
           .max_tokens = static_cast<int>(*std::ranges::max_element(size.tokens)),
           .tokens = size.tokens,
           .hidden = size.hidden,
           .dtype = dtype,
           .combine_dtype = dtype,
           .biases = 2});
    }
  }
}

TEST_CASE("4097 tokens in HT", "[process][slow]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    run({.layout = layout, .ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 4097, .hidden = 8});
  }
}

TEST_CASE("the maximum of tokens is its own for LL and for HT", "[process]") {
  const Scenario ht{.layout = Layout::ht_flat, .max_tokens = 40, .ll_max_tokens = 6};
  Scenario ll = ht;
  ll.layout = Layout::ll_expert_major;
  Scenario ranks = ht;
  ranks.layout = Layout::ll_rank_major;
  run_all({ht, ll, ranks});
}

TEST_CASE("fewer SMs than the group has", "[process]") {
  run_all(in_all_layouts({.top_k = 4, .max_tokens = 30, .num_sms = 1}));
}

}  // namespace
}  // namespace ucclep::test
