// SPDX-License-Identifier: Apache-2.0
// What a group's kernels have of the network in memory: the rings into which they put commands, and the words in which
// the proxy threads report what has come; how lanes look at those, and how they detach a rank (protocol/by_network.hpp
// has the table of what is ordered).
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/layout/arrivals.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/message.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

// NetworkTables follow it in memory.
struct NetworkView {
  Fifo fifo;
  Arrivals arrivals;                       // by the proxy threads
  uint32_t rows_per_chunk[2 * num_kinds];  // rows that arrive together; behind those from rank to rank, from node to
                                           // node (between_nodes_flag)
  ChannelWords channel;                    // by the proxy threads
  char* channel_window;                    // this rank's, in host memory
};

// Offsets.
struct NetworkTables {
  uint64_t seen;   // u64 [kind][slot][source]: progress words that lanes have seen. Consumed words: in the window
  uint64_t turns;  // u32 [kind][source]: 1 while a lane looks at the source's words
  uint64_t nodes;  // what the group's NodeTable is a view of
  uint64_t bytes;

  static UCCLEP_HD constexpr NetworkTables of(const GroupShape& shape) {
    NetworkTables at{};
    at.turns = at.seen + sizeof(uint64_t) * Arrivals::progress_words(shape.ranks, shape.in_flight);
    at.nodes = at.turns + sizeof(uint32_t) * num_kinds * shape.ranks;
    at.bytes = at.nodes + sizeof(uint32_t) * NodeTable::word_count(shape.ranks, shape.nodes.nodes);
    return at;
  }
};

}  // namespace ucclep
