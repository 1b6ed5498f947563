// SPDX-License-Identifier: Apache-2.0
#include "conformance/in_nodes.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "conformance/exchange.hpp"
#include "conformance/network_batch.hpp"
#include "conformance/network_scenarios.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

ucclEpGroupConfig_t config_of(const Scenario& scenario, const InNodes& how) {
  return how.short_chunks ? of_short_chunks(scenario) : group_config({scenario});
}

InNodes on_some_sms(InNodes how, unsigned seed) {
  if (how.num_sms == 0) how.num_sms = sms_of(mix(seed, 5));
  return how;
}

}  // namespace

int sms_of(uint64_t draw) {
  constexpr int some[] = {1, 1, 2, 0};
  return some[draw % std::size(some)];
}

std::vector<Scenario> in_layouts_of(bool ll, const Scenario& scenario) {
  std::vector<Scenario> scenarios = in_all_layouts(scenario);
  std::erase_if(scenarios, [&](const Scenario& one) { return one.ll() != ll || !exists(one); });
  return scenarios;
}

ucclEpGroupConfig_t of_short_chunks(const Scenario& scenario) {
  ucclEpGroupConfig_t config = group_config({scenario});
  config.max_token_bytes = 1 << 16;
  return config;
}

void run_in_nodes(const Nodes& nodes, const std::string& transport, const std::vector<Scenario>& scenarios,
                  const InNodes& how) {
  INFO("transport: " << transport);
  run_ranks(ranks_of(nodes), [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, transport.c_str()));
    Stream stream(comm);
    for (size_t i = 0; i < scenarios.size(); ++i) {
      for (Scenario scenario : in_layouts_of(how.ll, scenarios[i])) {
        scenario.ranks = rank.count;
        scenario.nodes = nodes;
        scenario.num_sms = how.num_sms;
        scenario.round = std::min(how.tokens_per_round, scenario.max_tokens);
        try {
          const Group group = make_group(comm, config_of(scenario, how));
          const Handle handle = make_handle(group, handle_config(scenario));
          set_map(rank, comm, group, stream, scenario);
          for (int round = 0; round < how.rounds; ++round) {
            const bool back = how.gradients && round == how.rounds - 1;
            (back ? there_and_back : round_trip)(rank, comm, handle, stream, scenario,
                                                 scenario.seed + static_cast<uint64_t>(round));
          }
          no_async_error(comm);
        } catch (const Failure& failure) {
          throw Failure(transport + ", scenario " + std::to_string(i) + ": " + failure.what());
        }
      }
    }
  });
}

void run_in_worlds(const std::vector<Nodes>& worlds, const InNodes& how) {
  for (size_t turn = 0; turn < (reduced() ? 2 : worlds.size()); ++turn) {
    std::vector<Scenario> scenarios = some_of_everything(ranks_of(worlds[turn]));
    if (turn > 0) scenarios = {scenarios[turn], scenarios[(turn + 2) % scenarios.size()]};
    if (reduced()) scenarios.resize(1);
    run_in_nodes(worlds[turn], transport_under_test(), scenarios, how);
  }
}

void run_reordered(unsigned seed, const InNodes& how) {
  const std::vector<Nodes> worlds{{2, 2}, {3, 5}, {2, 1, 2}, {4, 1}};
  const Nodes& nodes = worlds[seed % worlds.size()];
  const std::vector<Scenario> all = some_of_everything(ranks_of(nodes));
  run_in_nodes(nodes, "faulty:seed=" + std::to_string(seed) + ":" + transport_under_test(),
               {all[seed % all.size()], all[(seed / 4 + 1) % all.size()]}, on_some_sms(how, seed));
}

void run_phases(unsigned seed, const InNodes& how) {
  const std::vector<Nodes> worlds{{2, 2}, {3, 2}};
  const Nodes nodes = worlds[seed % worlds.size()];
  const std::string transport = "faulty:delay=400,seed=" + std::to_string(seed) + ":" + transport_under_test();
  run_ranks(ranks_of(nodes), [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, transport.c_str()));
    Stream stream(comm);
    for (Scenario scenario : in_layouts_of(how.ll, some_of_everything(rank.count)[seed % 4])) {
      scenario.ranks = rank.count;
      scenario.nodes = nodes;
      scenario.num_sms = on_some_sms(how, seed).num_sms;
      ucclEpGroupConfig_t config = config_of(scenario, how);
      config.max_in_flight = seed % 2 == 0 ? 2 : 4;
      const Group group = make_group(comm, config);
      std::vector<Handle> handles;
      for (int i = 0; i < config.max_in_flight; ++i) handles.push_back(make_handle(group, handle_config(scenario)));
      for (unsigned round = 0; round < 3; ++round) {
        const bool back = round == 2 && scenario.layout != Layout::ll_rank_major;
        Batch batch(rank, comm, handles, back ? backward_of(scenario) : scenario, seed + (back ? 4 : 4 * round));
        if (round > 0) batch.split(seed + round);
        if (static_cast<unsigned>(rank.rank) == seed % 4) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        batch.enqueue(stream);
        stream.synchronize();
        batch.check();
      }
      no_async_error(comm);
    }
  });
}

void run_where_one_differs(const Scenario& common, const Scenario& other, const ucclEpGroupConfig_t& config,
                           const std::function<void(const AmongThem&)>& more) {
  run_ranks(common.ranks, [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, common.nodes, "faulty:seed=4:loopback"));
    Stream stream(comm);
    const Group group = make_group(comm, config);
    const Handle handle = make_handle(group, handle_config(common));
    for (int wrong = 0; wrong < rank.count; ++wrong) {
      Exchange exchange(rank, comm, rank.rank == wrong ? other : common);
      exchange.update(handle, stream);
      require(exchange.try_dispatch(handle, stream) == ucclEpSuccess, "a dispatch was refused at once");
      stream.synchronize();
      const ucclEpAsyncError_t error = async_error(comm);
      require(error.code == ucclEpInvalidArgument && std::string(error.text).find("hidden") != std::string::npos,
              std::string("another record: ") + error.text);
      exchange.check_untouched();
      rank.board.add(wrong);  // the next one may be in time to leave its record here
      rank.board.wait(wrong, static_cast<uint32_t>(rank.count));
      ok(ucclEpCommClearAsyncError(comm), "ucclEpCommClearAsyncError");
      round_trip(rank, comm, handle, stream, common, 3);
      if (more) more({rank, comm, handle, stream, wrong});
    }
    no_async_error(comm);
  });
}

void run_where_one_is_asked_for(const char* other, const char* variable, const char* common, Layout layout) {
  run_ranks(4, {.processes = true}, [&](Rank& rank) {
    setenv(variable, rank.rank == 2 ? other : common, 1);
    Comm comm(rank, in_nodes_of(rank, 2, "loopback"));
    const ucclEpGroupConfig_t config = group_config({Scenario{.layout = layout}});
    ucclEpGroup_t group = nullptr;
    refused(ucclEpGroupCreate(&group, comm, &config), ucclEpInvalidArgument, "ucclEpGroupCreate",
            {variable, "rank 2", common, other});
  });
}

}  // namespace ucclep::test
