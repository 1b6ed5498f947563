// SPDX-License-Identifier: Apache-2.0
// Which ranks are a node, and who takes in whose rows. A node is here what reaches each other's windows: a domain; in
// groups with masks, which lose ranks one by one, a rank. HT sends a row to a node once, to a rank of it that is the
// source's relay there, and so along rails: the relay has the source's index in its own node, modulo that node's
// ranks. What a relay takes in, and what it sends back, lies in blocks, one for each rank of which it is the relay: of
// other nodes, in order.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"

namespace ucclep {

// Equal on all ranks.
struct NodeShape {
  uint32_t nodes = 0;  // 0: all ranks are in one
  uint32_t most = 0;   // ranks of the largest
  uint32_t turns = 0;  // ranks of one node that have the same relay in another, at most

  UCCLEP_HD constexpr uint32_t blocks() const { return nodes == 0 ? 0 : (nodes - 1) * turns; }
};

// A view of a table of words: node of a rank [R], its index there [R], first member of a node [nodes + 1], members [R].
// Nodes are numbered by their lowest ranks, and their members ascend.
struct NodeTable {
  const uint32_t* words = nullptr;
  uint32_t ranks = 0, nodes = 0, turns = 0;

  static constexpr uint32_t no_rank = 0xffffffffu;
  static UCCLEP_HD constexpr uint32_t word_count(uint32_t ranks, uint32_t nodes) { return 3 * ranks + nodes + 1; }

  UCCLEP_HD constexpr uint32_t node_of(uint32_t rank) const { return words[rank]; }
  UCCLEP_HD constexpr uint32_t index_of(uint32_t rank) const { return words[ranks + rank]; }
  UCCLEP_HD constexpr uint32_t size_of(uint32_t node) const { return first_of(node + 1) - first_of(node); }
  UCCLEP_HD constexpr uint32_t member(uint32_t node, uint32_t index) const {
    return words[2 * ranks + nodes + 1 + first_of(node) + index];
  }

  // The rank of another node that takes in what `rank` sends there, and sends back what is for it.
  UCCLEP_HD constexpr uint32_t relay(uint32_t rank, uint32_t node) const {
    return member(node, index_of(rank) % size_of(node));
  }
  // The block of `rank` at its relay in that node. Of a rank of the node itself one that exists, and means nothing.
  UCCLEP_HD constexpr uint32_t block_of(uint32_t rank, uint32_t node) const {
    const uint32_t own = node_of(rank), other = own > node || own == nodes - 1 ? own - 1 : own;
    return other * turns + index_of(rank) / size_of(node);
  }
  // The rank whose block it is at that relay; no_rank: nobody's.
  UCCLEP_HD constexpr uint32_t rank_of(uint32_t block, uint32_t relay) const {
    const uint32_t own = node_of(relay), other = block / turns, node = other < own ? other : other + 1;
    const uint32_t index = index_of(relay) + block % turns * size_of(own);
    return index >= size_of(node) ? no_rank : member(node, index);
  }

 private:
  UCCLEP_HD constexpr uint32_t first_of(uint32_t node) const { return words[2 * ranks + node]; }
};

// Of one rank's rows for another in an operation, at most: what a message's 12 bits count (P8).
constexpr uint32_t max_chunks = 4095;

// Rows of a chunk, where an operation has `rows` at most and may have `most` chunks. The largest operation is 64
// messages or more, so that its first and last ones add little to it; smaller ones than the least cost more for each
// byte, larger ones than the largest no less (docs/tuning.md).
UCCLEP_HD constexpr uint32_t rows_of_chunk(uint32_t rows, uint64_t row_bytes, uint32_t most) {
  constexpr uint64_t min_bytes = 64 * 1024, largest_bytes = 4 * min_bytes, usual_chunks = 64;
  const uint64_t part = rows * row_bytes / usual_chunks;
  const uint64_t bytes = part < min_bytes ? min_bytes : part < largest_bytes ? part : largest_bytes;
  const uint64_t usual = (bytes + row_bytes - 1) / row_bytes, least = (uint64_t{rows} + most - 1) / most;
  return static_cast<uint32_t>(usual > least ? usual : least);
}

}  // namespace ucclep
