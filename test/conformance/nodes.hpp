// SPDX-License-Identifier: Apache-2.0
// Communicators whose ranks are in several virtual nodes.
#pragma once
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "support/ep.hpp"

namespace ucclep::test {

using Nodes = std::vector<int>;  // the ranks of each

inline int ranks_of(const Nodes& nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), 0);
}

// transport: outlives the config; nullptr: what the library takes.
inline ucclEpCommConfig_t in_nodes(const Rank& rank, const Nodes& nodes, const char* transport = nullptr) {
  ucclEpCommConfig_t config = comm_config(rank);
  int first = 0;
  for (const int size : nodes) {
    if (rank.rank >= first && rank.rank < first + size) config.ranks_per_node = size;
    first += size;
  }
  config.transport = transport;
  return config;
}

// Nodes of so many ranks each, the last one of what is left.
inline ucclEpCommConfig_t in_nodes_of(const Rank& rank, int size, const char* transport = nullptr) {
  ucclEpCommConfig_t config = in_nodes(rank, {}, transport);
  config.ranks_per_node = size;
  return config;
}

// By one proxy thread, whose one endpoint numbers all ranks of other nodes: settings of `faulty` mean those numbers.
inline ucclEpCommConfig_t by_one_thread(ucclEpCommConfig_t config) {
  config.proxy_threads = 1;
  return config;
}

// UCCLEP_TEST_TRANSPORT, for cases that hold over all of them.
inline std::string transport_under_test() {
  const char* asked = std::getenv("UCCLEP_TEST_TRANSPORT");
  return asked == nullptr ? "loopback" : asked;
}

inline ucclEpStats_t stats_of(ucclEpComm_t comm) {
  ucclEpStats_t stats = UCCLEP_STATS_INIT;
  ok(ucclEpCommGetStats(comm, &stats), "ucclEpCommGetStats");
  return stats;
}

}  // namespace ucclep::test
