// SPDX-License-Identifier: Apache-2.0
// Operations of two groups at the same time, on two streams of each rank, which ranks call in different orders: one
// that waits for peers leaves room for the other (docs/protocol.md, "Blocks"). On the host device with as many SMs as
// given.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>

#include "conformance/exchange.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

constexpr int rounds = 6;

enum class Calls { whole, phases };

// A group with its stream.
struct Party {
  Party(const Rank& rank, const Comm& comm, const Scenario& scenario)
      : group(make_group(comm, config(scenario))), handle(make_handle(group, handle_config(scenario))), stream(comm) {
    round_trip(rank, comm, handle, stream, scenario);
  }
  static ucclEpGroupConfig_t config(const Scenario& scenario) {
    ucclEpGroupConfig_t config = group_config({scenario});
    config.timeout_ms = 5000;
    return config;
  }

  Group group;
  Handle handle;
  Stream stream;
};

// All calls of an exchange, and in phases those that end them apart.
void begin(Party& party, Exchange& exchange, Calls calls) {
  exchange.update(party.handle, party.stream);
  exchange.dispatch_config.send_only = calls == Calls::phases ? 1 : 0;
  exchange.dispatch(party.handle, party.stream);
  if (calls == Calls::whole) exchange.combine(party.handle, party.stream);
}
void finish(Party& party, Exchange& exchange, Calls calls) {
  if (calls == Calls::whole) return;
  ok(ucclEpComplete(party.handle, party.stream), "ucclEpComplete");
  exchange.combine(party.handle, party.stream);
}

// Ranks with an odd number call what `second` does first.
void in_other_orders(int ranks, Layout first, Layout second, Calls calls, const char* mode) {
  std::optional<Environment> environment;
  if (std::getenv("UCCLEP_HOST_MODE") == nullptr) environment.emplace("UCCLEP_HOST_MODE", mode);
  run_ranks(ranks, [&](Rank& rank) {
    Scenario scenarios[2] = {pair_of_ranks(first), pair_of_ranks(second)};
    for (Scenario& scenario : scenarios) {
      scenario.ranks = ranks;
      scenario.experts = 2 * ranks;
    }
    const Comm comm(rank, comm_config(rank));
    Party parties[2] = {{rank, comm, scenarios[0]}, {rank, comm, scenarios[1]}};
    for (uint64_t round = 0; round < rounds; ++round) {
      Exchange exchanges[2] = {{rank, comm, scenarios[0], round}, {rank, comm, scenarios[1], round}};
      const int swap = rank.rank % 2;
      for (const int i : {swap, 1 - swap}) begin(parties[i], exchanges[i], calls);
      for (const int i : {1 - swap, swap}) finish(parties[i], exchanges[i], calls);
      for (Party& party : parties) party.stream.synchronize();
      for (Exchange& exchange : exchanges) exchange.check_all();
      no_async_error(comm);
    }
  });
}

void in_all_sizes(Layout first, Layout second) {
  for (const int ranks : {2, 4}) {
    for (const char* const mode : {"residency=2", "residency=4"}) {
      for (const Calls calls : {Calls::whole, Calls::phases}) {
        CAPTURE(ranks, mode, calls == Calls::phases);
        in_other_orders(ranks, first, second, calls, mode);
      }
    }
  }
}

TEST_CASE("room: two groups of LL in other orders", "[room][schedules]") {
  in_all_sizes(Layout::ll_expert_major, Layout::ll_rank_major);
}
TEST_CASE("room: a group of LL and one of HT in other orders", "[reduced][room][schedules]") {
  in_all_sizes(Layout::ll_expert_major, Layout::ht_flat);
}
TEST_CASE("room: two groups of HT in other orders", "[room][schedules]") {
  in_all_sizes(Layout::ht_flat, Layout::ht_expert_major);
}

}  // namespace
}  // namespace ucclep::test
