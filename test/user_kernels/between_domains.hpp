// SPDX-License-Identifier: Apache-2.0
// Sessions whose ranks are in several domains, with a network between them, for device-initiated operations.
#pragma once
#include <functional>
#include <initializer_list>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/nodes.hpp"

namespace ucclep::test {

inline std::string reordering(uint32_t seed) {
  return "faulty:seed=" + std::to_string(seed) + ",delay=" + std::to_string(20 * (seed % 5)) + ":loopback";
}

// In each of the layouts, on a communicator of its own. With masks sums are those of one domain. timeout_ms: of the
// group.
using SessionBody = std::function<void(Rank&, Session&, const Scenario&)>;
inline void run_between_domains(const Nodes& nodes, const std::string& transport, const Scenario& asked,
                                std::initializer_list<Layout> layouts, const SessionBody& body, int timeout_ms = 0) {
  for (const Layout layout : layouts) {
    Scenario scenario = asked;
    scenario.ranks = ranks_of(nodes);
    scenario.nodes = asked.masked ? Nodes{scenario.ranks} : nodes;
    scenario.layout = layout;
    scenario.carried = scenario.ll();
    if (!scenario.by_expert()) scenario.alignment = 1;
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, in_nodes(rank, nodes, transport.c_str()), scenario, timeout_ms);
      try {
        body(rank, at, scenario);
      } catch (const Failure& failure) {
        throw Failure(transport + ": " + failure.what());
      }
    });
  }
}

// A limit within which an operation ends that has all its ranks, under a sanitizer on a loaded machine, too.
inline constexpr int ms_for_the_first = 2000;

// Two ranks, of which the first waits for the other, which does not come.
inline void is_named_in_time(const Rank& rank, const Session& at) {
  if (rank.rank == 0) {
    const ucclEpResult_t result = ucclEpStreamSynchronize(at.comm, at.stream);
    const ucclEpAsyncError_t error = async_error(at.comm);
    require(result == ucclEpTimeout && error.peer == 1, std::string("another record: ") + error.text);
  }
  rank.board.add(0);
  rank.board.wait(0, 2);
}

}  // namespace ucclep::test
