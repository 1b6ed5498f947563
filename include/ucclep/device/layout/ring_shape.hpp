// SPDX-License-Identifier: Apache-2.0
// A ring of chunks in which rows of HT land, where a group has no room for all that may come (ht_ring.hpp). A chunk is
// a run of places, and one message, as anywhere on the network. Chunk c lies where chunk c - chunks lay, and so may
// land only when the reader has freed that one.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"

namespace ucclep {

// Rows of a chunk, where an operation has `rows` at most and may have `most` chunks. The largest operation is 64
// messages or more, so that its first and last ones add little to it; smaller ones than the least cost more for each
// byte, larger ones than the largest no less (docs/tuning.md).
UCCLEP_HD constexpr uint32_t rows_of_chunk(uint32_t rows, uint64_t row_bytes, uint32_t most) {
  constexpr uint64_t least_bytes = 64 * 1024, largest_bytes = 4 * least_bytes, usual_chunks = 64;
  const uint64_t part = rows * row_bytes / usual_chunks;
  const uint64_t bytes = part < least_bytes ? least_bytes : part < largest_bytes ? part : largest_bytes;
  const uint64_t usual = (bytes + row_bytes - 1) / row_bytes, least = (uint64_t{rows} + most - 1) / most;
  return static_cast<uint32_t>(usual > least ? usual : least);
}

// Of the rows that one rank sends another in an operation of a kind. Equal on all ranks.
struct RingShape {
  static constexpr uint32_t least_chunks = 2;    // one lands while the other is read
  static constexpr uint32_t most_chunks = 1023;  // of an operation, and so of a ring: a freed word has 10 bits for them

  uint32_t rows_per_chunk = 1;
  uint32_t chunks = 0;  // 0: there is no ring

  // asked: chunks. A ring has no more of them than an operation.
  static UCCLEP_HD constexpr RingShape of(uint32_t rows, uint64_t row_bytes, uint32_t asked) {
    RingShape ring{};
    ring.rows_per_chunk = rows_of_chunk(rows, row_bytes, most_chunks);
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

  // A sender hears of so many chunks at a time. A quarter: it is never out of room that has been free for long.
  UCCLEP_HD constexpr uint32_t told_at_once() const { return chunks < 8 ? 1 : chunks / 4; }
  // Words of freed chunks that are under way at once, at most: each tells of as many more, and nothing lands that the
  // sender has not heard of.
  UCCLEP_HD constexpr uint32_t words_under_way() const { return chunks / told_at_once(); }
};

}  // namespace ucclep
