// SPDX-License-Identifier: Apache-2.0
// What a rank knows of the rings of HT: words in its first window, which say what has been read of them (ht_ring.hpp).
// Each holds an operation's number as well, so that nothing need be zeroed between operations (P4).
#pragma once
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/ring_shape.hpp"

namespace ucclep {

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
static_assert(RingShape::most_chunks < 1u << RingTag::chunk_bits);

// A rank pulls the rows of a source in so many streams, each in order of place: place p in stream p modulo that. Of
// each it tells the relay how far it is. A word has one writer at a time: no count is added to in a peer's memory,
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
  uint64_t relayed;  // u64 [slot][block][position] RingTag::of_chunk: its ranks have been told of the row
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
