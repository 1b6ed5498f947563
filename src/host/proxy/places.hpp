// SPDX-License-Identifier: Apache-2.0
// From the logical places of a command to addresses: where a group's rows and headers are sent from and where they
// land, in windows that are laid out alike on all ranks. No command and no message names an address.
#pragma once
#include <cstdint>
#include <span>

#include "ucclep/device/layout.hpp"

namespace ucclep::proxy {

// Blocks [seq % in_flight][rank] in a window: of the destination where rows are sent from, of the source where they
// land.
struct Area {
  uint32_t window = 0;  // index of the group's windows
  uint64_t offset = 0, slot_bytes = 0, rank_bytes = 0;

  constexpr uint64_t at(uint32_t slot, uint32_t rank) const { return offset + slot * slot_bytes + rank * rank_bytes; }
};

// Of the operations of one kind. In a block rows are dense: the one at place p begins at p times the bytes that a row
// has in the operation.
struct KindPlaces {
  Area rows_from = {}, rows_to = {};
  Area header_from = {}, header_to = {};
  uint32_t rows = 0;            // most between two ranks
  uint32_t row_bytes = 0;       // most
  uint32_t rows_per_chunk = 1;  // a chunk is one message
  uint32_t header_bytes = 0;    // most

  constexpr uint32_t chunks_of(uint32_t of_rows) const { return (of_rows + rows_per_chunk - 1) / rows_per_chunk; }
  constexpr uint32_t chunks() const { return chunks_of(rows); }
  constexpr uint64_t chunk_bytes() const { return uint64_t{rows_per_chunk} * row_bytes; }
};

struct Places {
  KindPlaces kinds[num_kinds];

  const KindPlaces& operator[](Kind kind) const { return kinds[static_cast<uint32_t>(kind)]; }
};

const char* kind_name(Kind kind);

// Error(ucclEpInvalidArgument) where an area goes beyond its window, Error(ucclEpNotSupported) where a command or an
// immediate cannot name all rows.
void check_places(const Places& places, uint32_t ranks, uint32_t in_flight, std::span<const uint64_t> window_bytes);

}  // namespace ucclep::proxy
