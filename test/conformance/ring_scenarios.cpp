// SPDX-License-Identifier: Apache-2.0
#include "conformance/ring_scenarios.hpp"

#include <chrono>
#include <thread>

#include "conformance/network_scenarios.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {
namespace {

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool may_have(RingsOf rings, ucclEpGroup_t group) {
  ucclEpDeviceGroup device;
  ok(ucclEpGroupGetDevice(group, &device), "ucclEpGroupGetDevice");
  return rings == RingsOf::group || device.shape.relay_stages != 0;
}

}  // namespace

void run_rings(const Nodes& nodes, const std::vector<Scenario>& scenarios, int num_sms) {
  InNodes how = by_rings;
  how.num_sms = num_sms;
  run_in_nodes(nodes, transport_under_test(), scenarios, how);
}

Scenario to_the_other_node(const Nodes& nodes) {
  Scenario scenario{.layout = Layout::ht_flat, .ranks = 4, .experts = 4, .top_k = 4, .max_tokens = 24, .nodes = nodes};
  return scenario;
}

void run_turns_with_ll() {
  const Nodes nodes{2, 2};
  for (const char* copies : {"node", "rank"}) {
    const Environment of_ll("UCCLEP_LL_COPIES", copies);
    run_ranks(4, [&](Rank& rank) {
      const std::vector<Scenario> scenarios =
          in_all_layouts({.experts = 16, .top_k = 4, .max_tokens = 11, .ll_max_tokens = 19, .nodes = nodes});
      Comm comm(rank, in_nodes(rank, nodes, "faulty:seed=3:loopback"));
      Stream stream(comm);
      ucclEpGroupConfig_t config = group_config(scenarios);
      config.max_token_bytes = 1 << 16;
      config.max_in_flight = 4;
      const Group group = make_group(comm, config);
      for (uint64_t round = 1; round <= 3; ++round) {
        for (const Scenario& scenario : scenarios) {
          const Handle handle = make_handle(group, handle_config(scenario));
          round_trip(rank, comm, handle, stream, scenario, round);
        }
        const Handle low = make_handle(group, handle_config(scenarios[0]));
        Exchange pending(rank, comm, scenarios[0], round + 10);
        pending.dispatch_config.send_only = 1;
        pending.update(low, stream);
        pending.dispatch(low, stream);
        const Handle high = make_handle(group, handle_config(scenarios[2]));
        round_trip(rank, comm, high, stream, scenarios[2], round + 20);
        ok(ucclEpComplete(low, stream), "ucclEpComplete");
        pending.combine(low, stream);
        stream.synchronize();
        pending.check_dispatch();
        pending.check_combine();
      }
      no_async_error(comm);
    });
    if (reduced()) break;
  }
}

void run_held_back(RingsOf rings, bool asked) {
  const Nodes nodes{2, 2};
  run_ranks(4, [&](Rank& rank) {
    const Scenario scenario = to_the_other_node(nodes);
    Comm comm(rank, in_nodes(rank, nodes, "loopback"));
    const Group group = make_group(comm, of_short_chunks(scenario));
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    round_trip(rank, comm, handle, stream, scenario);
    const bool some = stats_of(comm).credit_stalls > 0, held = asked && may_have(rings, group);
    require(some == held, some ? "chunks were held back" : "no chunk was held back");
    rank.board.add(0);
    rank.board.wait(0, 4);
  });
}

void run_broken_while_full(RingsOf rings) {
  const Nodes nodes{2, 2};
  for (const int when : {9, 14, 20}) {
    const std::string transport =
        "faulty:delay=0,withhold=0,repeat=0,break=" + std::to_string(when) + ",at=0,peer=0:loopback";
    run_ranks(4, [&](Rank& rank) {
      const Scenario scenario = to_the_other_node(nodes);
      Comm comm(rank, by_one_thread(in_nodes(rank, nodes, transport.c_str())));
      ucclEpGroupConfig_t config = of_short_chunks(scenario);
      config.timeout_ms = 120'000;
      Group group = make_group(comm, config);
      const bool fills = may_have(rings, group);
      Handle handle = make_handle(group, handle_config(scenario));
      Stream stream(comm);
      Exchange exchange(rank, comm, scenario);
      const auto begin = std::chrono::steady_clock::now();
      ucclEpResult_t result = exchange.try_update(handle, stream);
      for (int i = 0; i < 1000 && result == ucclEpSuccess; ++i) {
        result = i % 2 == 0 ? exchange.try_dispatch(handle, stream) : exchange.try_combine(handle, stream);
        if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(comm, stream);
      }
      const ucclEpAsyncError_t error = async_error(comm);
      require(result == ucclEpRemoteError && error.code == result, error.text);
      require(says(error.text, "has lost its connection to rank") || says(error.text, "has given the communicator up"),
              error.text);
      if (rank.rank == 0 && fills) require(stats_of(comm).credit_stalls > 0, "no ring was full");
      handle.reset();
      group.reset();
      require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "it took long");
    });
  }
}

GroupBytes bytes_with(const char* variable, const char* ring, const Nodes& nodes, const ucclEpGroupConfig_t& config,
                      bool made) {
  const Environment asked(variable, ring);
  GroupBytes bytes;
  run_ranks(ranks_of(nodes), [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, "loopback"));
    ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
    ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
    ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
    ucclEpDeviceGroup device{};
    if (made) {
      const Group group = make_group(comm, config);
      ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
      ok(ucclEpGroupGetDevice(group, &device), "ucclEpGroupGetDevice");
    }
    if (rank.rank != 0) return;
    bytes = {static_cast<double>(limits.device_bytes), static_cast<double>(info.window_bytes),
             device.shape.relay_stages != 0};
  });
  return bytes;
}

void run_where_a_ring_differs() {
  const Scenario common{.layout = Layout::ht_flat, .max_tokens = 16, .hidden = 64, .nodes = {2, 2}};
  Scenario other = common;
  other.hidden = 136;
  run_where_one_differs(common, other, of_short_chunks(common), [&](const AmongThem& at) {
    // Sums that one rank expects to be longer.
    Exchange combined(at.rank, at.comm, common);
    combined.update(at.handle, at.stream);
    combined.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    combined.check_dispatch();
    if (at.rank.rank == at.wrong) combined.combine_config.pass = UCCLEP_PASS_BACKWARD;
    require(combined.try_combine(at.handle, at.stream) == ucclEpSuccess, "a combine was refused at once");
    at.stream.synchronize();
    require(async_error(at.comm).code == ucclEpInvalidArgument, "another record");
    at.rank.board.add(10 + at.wrong);
    at.rank.board.wait(10 + at.wrong, static_cast<uint32_t>(at.rank.count));
    ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
    round_trip(at.rank, at.comm, at.handle, at.stream, common, 4);
  });
}

}  // namespace ucclep::test
