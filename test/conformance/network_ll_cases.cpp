// SPDX-License-Identifier: Apache-2.0
// LL between virtual nodes: the same bytes as in one domain, over a network that keeps order and over one that does
// not.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Each scenario in both layouts, with so many routings that all slots are used again.
void run_in(const Nodes& nodes, const std::string& transport, std::vector<Scenario> scenarios, int rounds = 3) {
  if (reduced()) scenarios.resize(1);
  INFO("transport: " << transport);
  const int ranks = ranks_of(nodes);
  run_ranks(ranks, [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, transport.c_str()));
    Stream stream(comm);
    for (size_t i = 0; i < scenarios.size(); ++i) {
      for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
        Scenario scenario = scenarios[i];
        const bool late = scenario.weights == Weights::with_combine || scenario.weights == Weights::with_both;
        if (layout == Layout::ll_rank_major && late) continue;  // which applies none
        scenario.layout = layout;
        scenario.ranks = ranks;
        try {
          Group group = make_group(comm, group_config({scenario}));
          Handle handle = make_handle(group, handle_config(scenario));
          for (int round = 0; round < rounds; ++round) {
            round_trip(rank, comm, handle, stream, scenario, scenario.seed + static_cast<uint64_t>(round));
          }
          no_async_error(comm);
        } catch (const Failure& failure) {
          throw Failure(transport + ", scenario " + std::to_string(i) + ": " + failure.what());
        }
      }
    }
  });
}

// What differs in the rows and in who sends them. experts: of all ranks.
std::vector<Scenario> some_of_everything(int ranks) {
  const int experts = 4 * ranks;
  std::vector<Scenario> all;
  all.push_back({.experts = experts, .top_k = 5, .max_tokens = 9, .hidden = 72, .rule = uniform(10)});
  all.push_back({.experts = experts, .top_k = 3, .max_tokens = 6, .weights = Weights::with_combine, .biases = 2});
  Scenario uneven{.experts = experts, .top_k = 4, .max_tokens = 12, .hidden = 136, .rule = uniform(30)};
  for (int rank = 0; rank < ranks; ++rank) uneven.tokens.push_back(rank % 3 == 0 ? 12 : rank % 3 == 1 ? 0 : 1);
  all.push_back(uneven);
  Scenario quantised{.experts = experts, .top_k = 3, .max_tokens = 7, .hidden = 640};
  quantised.quant = UCCLEP_QUANT_FP8_128;
  quantised.scales = Scales{ucclEpFloat32, 0, true};
  all.push_back(quantised);
  return all;
}

std::vector<Scenario> the_rest(int ranks) {
  const int experts = 2 * ranks;
  std::vector<Scenario> all;
  Scenario bytes{.experts = experts, .top_k = 3, .max_tokens = 7, .hidden = 256, .dtype = ucclEpFloat8e4m3};
  bytes.combine_hidden = 64;
  bytes.scales = Scales{ucclEpFloat32, 5, true};
  all.push_back(bytes);
  all.push_back({.experts = experts,
                 .top_k = 2,
                 .max_tokens = 5,
                 .dtype = ucclEpFloat32,
                 .combine_dtype = ucclEpFloat32,
                 .weights = Weights::with_both,
                 .rule = next_rank()});
  all.push_back({.experts = experts, .top_k = 2, .max_tokens = 4, .carried = true, .rule = only({-1, -1})});
  all.push_back({.experts = experts, .top_k = 1, .max_tokens = 33, .hidden = 24, .rule = only({5})});
  return all;
}

TEST_CASE("network LL: two nodes of two ranks", "[driver][network][reduced]") {
  run_in({2, 2}, "loopback", some_of_everything(4));
  run_in({2, 2}, "loopback", the_rest(4));
}
TEST_CASE("network LL: four nodes of two ranks", "[driver][network]") {
  run_in({2, 2, 2, 2}, "loopback", some_of_everything(8));
}
TEST_CASE("network LL: two nodes of four ranks", "[driver][network]") {
  run_in({4, 4}, "loopback", some_of_everything(8));
}
TEST_CASE("network LL: eight nodes of one rank", "[driver][network]") {
  run_in({1, 1, 1, 1, 1, 1, 1, 1}, "loopback", some_of_everything(8));
  run_in({1, 1, 1, 1, 1, 1, 1, 1}, "loopback", the_rest(8));
}
TEST_CASE("network LL: a node of three ranks and one of five", "[driver][network]") {
  run_in({3, 5}, "loopback", some_of_everything(8));
}

// Rows of several chunks, and of more bytes than a chunk has.
TEST_CASE("network LL: rows of many chunks", "[driver][network]") {
  run_in({1, 1}, "loopback",
         {{.experts = 4, .top_k = 2, .max_tokens = 24, .hidden = 7168},
          {.experts = 4, .top_k = 2, .max_tokens = 2, .hidden = 40000}});
}

TEST_CASE("network LL: a network that reorders, repeats and withholds", "[driver][network][reduced][seeds]") {
  const char* first = std::getenv("UCCLEP_TEST_FIRST_SEED");
  const unsigned begin = first == nullptr ? 1 : static_cast<unsigned>(std::atoi(first));
  const std::vector<Nodes> worlds{{2, 2}, {1, 1, 1, 1}, {1, 3}};
  for (unsigned seed = begin; seed < begin + seeds(); ++seed) {
    const std::string transport = "faulty:seed=" + std::to_string(seed) + ":loopback";
    const std::vector<Scenario> all = some_of_everything(4);
    run_in(worlds[seed % worlds.size()], transport, {all[seed % all.size()], all[(seed / 4 + 1) % all.size()]}, 5);
  }
}

}  // namespace
}  // namespace ucclep::test
