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

// A ring of chunks in which rows of HT land, where a group has no room for all that may come (ht/nodes/ring.hpp). A
// chunk is a run of places, and one message, as anywhere on the network. Chunk c lies where chunk c - chunks lay, and
// so may land only when the reader has freed that one.

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

// Of the rows that one rank sends another in an operation of a kind. Equal on all ranks.
struct RingShape {
  static constexpr uint32_t min_chunks = 2;     // one lands while the other is read
  static constexpr uint32_t max_chunks = 1023;  // of an operation, and so of a ring: a freed word has 10 bits for them

  uint32_t rows_per_chunk = 1;
  uint32_t chunks = 0;  // 0: there is no ring

  // asked: chunks. A ring has no more of them than an operation.
  static UCCLEP_HD constexpr RingShape of(uint32_t rows, uint64_t row_bytes, uint32_t asked) {
    RingShape ring{};
    ring.rows_per_chunk = rows_of_chunk(rows, row_bytes, max_chunks);
    const uint32_t all = ring.chunks_of(rows);
    ring.chunks = asked < all ? asked : all;
    return ring;
  }

  UCCLEP_HD constexpr uint32_t rows() const { return chunks * rows_per_chunk; }
  // Where the row of a place lies. A chunk is never divided, as the ring is a multiple of it.
  UCCLEP_HD constexpr uint32_t position_of(uint32_t place) const { return place % rows(); }
  UCCLEP_HD constexpr uint32_t chunk_of(uint32_t place) const { return place / rows_per_chunk; }
  UCCLEP_HD constexpr uint32_t chunks_of(uint32_t of_rows) const {
    return of_rows / rows_per_chunk + (of_rows % rows_per_chunk != 0 ? 1 : 0);
  }
  // May a chunk land, when all below `freed` have been freed.
  UCCLEP_HD constexpr bool has_room(uint32_t chunk, uint32_t freed) const { return chunk < freed + chunks; }

  // The number of freed chunks that a sender learns of at a time. A quarter: it is never out of room that has been free
  // for long.
  UCCLEP_HD constexpr uint32_t credit_batch() const { return chunks < 8 ? 1 : chunks / 4; }
  // Words of freed chunks that are under way at once, at most: each frees as many more, and nothing lands that the
  // sender has no credit for.
  UCCLEP_HD constexpr uint32_t words_under_way() const { return chunks / credit_batch(); }
};

// What a rank knows of the rings of HT: words in its first window, which say what has been read of them
// (ht/nodes/ring.hpp). Each holds an operation's number as well, so that nothing need be zeroed between operations
// (P4).

struct RingTag {
  static constexpr unsigned chunk_bits = 10, place_bits = 25;  // places of a command have 24 bits, and one may be next

  static UCCLEP_HD constexpr uint64_t of_chunk(uint64_t seq, uint32_t chunk) { return seq << chunk_bits | chunk; }
  static UCCLEP_HD constexpr uint64_t of_place(uint64_t seq, uint32_t place) { return seq << place_bits | place; }
  // 0 where the word is of another operation. Of seq the bits count that fit: a word is mistaken for one of 2^39
  // operations later, if nobody has written it since.
  static UCCLEP_HD constexpr uint32_t chunks_in(uint64_t word, uint64_t seq) { return count_in<chunk_bits>(word, seq); }
  static UCCLEP_HD constexpr uint32_t places_in(uint64_t word, uint64_t seq) { return count_in<place_bits>(word, seq); }

 private:
  template <unsigned bits>
  static UCCLEP_HD constexpr uint32_t count_in(uint64_t word, uint64_t seq) {
    return (word ^ seq << bits) >> bits == 0 ? static_cast<uint32_t>(word & ((1u << bits) - 1)) : 0;
  }
};
static_assert(RingShape::max_chunks < 1u << RingTag::chunk_bits);

// A rank pulls the rows of a source in so many streams, each in order of place: place p in stream p modulo that. Of
// each it reports to the relay how far it is. A word has one writer at a time: no count is added to in a peer's memory,
// since additions over PCIe are no atomic ones.
constexpr uint32_t ring_streams = 16;

// What has been freed of a ring: RingTag::of_chunk. One warp at a time looks whether there is more of it.
struct alignas(16) FreedChunks {
  uint64_t word;
  uint32_t turn, unused;  // turn: 1 while a warp looks
};

// Offsets. pulled: peers write it; all else the rank itself.
struct RingWords {
  uint64_t pulled;   // u64 [slot][block][member of this node][ring_streams] RingTag::of_place: below it all are pulled
  uint64_t relayed;  // u64 [slot][block][position] RingTag::of_chunk: its ranks have been notified of the row
  uint64_t summed;   // u64 [slot][node][position] the same: the sum has been read
  uint64_t freed;    // FreedChunks [slot][blocks, then nodes]
  uint64_t next;     // u32 [ranks * ring_streams] of each stream that this rank pulls: its next place
  uint64_t bytes;

  static UCCLEP_HD constexpr RingWords of(uint32_t in_flight, uint32_t ranks, const NodeShape& shape,
                                          const RingShape& rows, const RingShape& sums) {
    const uint64_t blocks = uint64_t{in_flight} * shape.blocks(), nodes = uint64_t{in_flight} * shape.nodes;
    RingWords at{};
    at.relayed = at.pulled + 8 * blocks * shape.most * ring_streams;
    at.summed = at.relayed + 8 * blocks * rows.rows();
    at.freed = (at.summed + 8 * nodes * sums.rows() + 15) / 16 * 16;
    at.next = at.freed + sizeof(FreedChunks) * (blocks + nodes);
    at.bytes = at.next + 4ull * ranks * ring_streams;
    return at;
  }

  UCCLEP_HD constexpr uint64_t pulled_of(const NodeShape& shape, uint32_t slot, uint32_t block, uint32_t member,
                                         uint32_t place) const {
    const uint64_t index = (uint64_t{slot} * shape.blocks() + block) * shape.most + member;
    return pulled + 8 * (index * ring_streams + place % ring_streams);
  }
  UCCLEP_HD constexpr uint64_t relayed_of(const NodeShape& shape, const RingShape& ring, uint32_t slot, uint32_t block,
                                          uint32_t place) const {
    const uint64_t index = uint64_t{slot} * shape.blocks() + block;
    return relayed + 8 * (index * ring.rows() + ring.position_of(place));
  }
  UCCLEP_HD constexpr uint64_t summed_of(const NodeShape& shape, const RingShape& ring, uint32_t slot, uint32_t node,
                                         uint32_t place) const {
    const uint64_t index = uint64_t{slot} * shape.nodes + node;
    return summed + 8 * (index * ring.rows() + ring.position_of(place));
  }
  UCCLEP_HD constexpr uint64_t freed_of_block(const NodeShape& shape, uint32_t slot, uint32_t block) const {
    return freed + sizeof(FreedChunks) * (uint64_t{slot} * (shape.blocks() + shape.nodes) + block);
  }
  UCCLEP_HD constexpr uint64_t freed_of_node(const NodeShape& shape, uint32_t slot, uint32_t node) const {
    return freed_of_block(shape, slot, shape.blocks() + node);
  }
};

}  // namespace ucclep
