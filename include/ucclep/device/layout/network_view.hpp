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

// Rows that a rank puts out for one of another node in an operation of HT, or of LL by relays, at most.
struct RowsBetweenNodes {
  uint32_t rows, bytes;  // bytes: of each

  static UCCLEP_HD constexpr RowsBetweenNodes of(const GroupShape& shape, Kind kind) {
    if (kind == Kind::combine)
      return {shape.ht_tokens, static_cast<uint32_t>(shape.token_bytes) + weight_row_bytes(shape)};
    return {relayed_rows(shape), static_cast<uint32_t>(relayed_row_bytes(shape, shape.token_bytes))};
  }
  UCCLEP_HD constexpr uint32_t chunks() const {
    const uint32_t of_chunk = rows_of_chunk(rows, bytes, max_chunks);
    return (rows + of_chunk - 1) / of_chunk;
  }
};

// Offsets.
struct NetworkTables {
  uint64_t seen;    // u64 [kind][slot][source]: progress words that lanes have seen. Consumed words: in the window
  uint64_t turns;   // u32 [kind][source]: 1 while a lane looks at the source's words
  uint64_t nodes;   // what the group's NodeTable is a view of
  uint64_t stored;  // u32 [chunk][rank][slot][dispatch, combine]: see stored_at

  static UCCLEP_HD constexpr NetworkTables of(const GroupShape& shape) {
    NetworkTables at{};
    at.turns = at.seen + sizeof(uint64_t) * Arrivals::progress_words(shape.ranks, shape.in_flight);
    at.nodes = at.turns + sizeof(uint32_t) * num_kinds * shape.ranks;
    at.stored = at.nodes + sizeof(uint32_t) * NodeTable::word_count(shape.ranks, shape.nodes.nodes);
    return at;
  }
  // All of them, of a group that has rows.
  static UCCLEP_HD constexpr uint64_t bytes(const GroupShape& shape) {
    const uint32_t of_dispatch = RowsBetweenNodes::of(shape, Kind::dispatch).chunks(),
                   of_combine = RowsBetweenNodes::of(shape, Kind::combine).chunks();
    const uint32_t chunks = of_dispatch > of_combine ? of_dispatch : of_combine;
    return of(shape).stored + stored_at(shape, Kind::dispatch, 0, 0, chunks);
  }
  // Within `stored`: how many rows of a chunk for a rank of another node are stored, 0 once it has left.
  static UCCLEP_HD constexpr uint64_t stored_at(const GroupShape& shape, Kind kind, uint32_t slot, uint32_t rank,
                                                uint32_t chunk) {
    const uint64_t of_rank = (uint64_t{chunk} * shape.ranks + rank) * shape.in_flight + slot;
    return sizeof(uint32_t) * (2 * of_rank + (kind == Kind::combine ? 1 : 0));
  }
};

}  // namespace ucclep
