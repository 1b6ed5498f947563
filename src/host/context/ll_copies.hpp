// SPDX-License-Identifier: Apache-2.0
// How rows of an LL dispatch cross the network: to each rank that wants them, or once to each node, whose relay
// forwards them (ucclep/device/ll/relay.hpp). A rule decides it for a group, from what all ranks know alike; it can be
// forced.
//
//   by rank:  T * W * most(rows out, rows in) / nic
//   by node:  the same, of the rows that cross then, + forward + T * W * rows forwarded / link
//
// in microseconds, where T are the tokens of a rank (B of LL), W the bytes of the group's longest row with its meta
// line, and rows are those of a token with uniform routing, of the rank that has most: a token wants a group of g ranks
// with 1 - C(E - g E/R, K) / C(E, K). docs/tuning.md has what follows for usual shapes.
#pragma once
#include <cstdint>
#include <vector>

namespace ucclep {

// UCCLEP_LL_COPIES.
enum class LlCopies { automatic, rank, node };
const char* copies_name(LlCopies copies);

struct CopyRule {
  // One GPU: bytes/us of its NIC, fitted to published times of LL over ConnectX-7 (perf/model.py), and of NVLink,
  // measured with bare copies between 4 H200 (docs/tuning.md).
  static constexpr double nic = 46.7e3, link = 351e3;
  // What a relay adds to the last row: a look at the proxies' words and a read of the row over the bus, 2 us each; then
  // a fence and a flag between peers, 5 us.
  static constexpr double forward = 9;
};

struct CopyShape {
  uint32_t experts, top_k, tokens;
  uint64_t row_bytes;                // with the meta line
  std::vector<uint32_t> node_sizes;  // ranks of each
};

struct CopyTimes {
  double by_rank_us, by_node_us;
};
CopyTimes copy_times(const CopyShape& shape);

// Once to each node? asked: what decides instead of the rule, where there is a node of several ranks.
bool copies_by_node(LlCopies asked, const CopyShape& shape);

}  // namespace ucclep
