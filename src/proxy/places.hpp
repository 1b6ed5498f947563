// SPDX-License-Identifier: Apache-2.0
// From the logical places of a command to addresses: where a group's rows and headers are sent from and where they
// land, in windows that are laid out alike on all ranks. No command and no message names an address.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/nodes.hpp"

namespace ucclep::proxy {

// Blocks [seq % in_flight][rank] in a window: of the destination where rows are sent from, of the source where they
// land; or any other block that is given for each of them.
struct Area {
  uint32_t window = 0;  // index of the group's windows
  uint64_t offset = 0, slot_bytes = 0, rank_bytes = 0;

  constexpr uint64_t at(uint32_t slot, uint32_t rank) const { return offset + slot * slot_bytes + rank * rank_bytes; }
};

// Of the operations of one kind and sort. In a block rows are dense: the one at place p begins at p times the bytes
// that a row has in the operation.
struct KindPlaces {
  Area rows_from = {}, rows_to = {};
  Area header_from = {}, header_to = {};
  // By destination: the block from which rows for it are sent, and the one in its window where they land. Empty: the
  // destination's, and this rank's.
  std::vector<uint32_t> from_block = {}, to_block = {};
  uint32_t rows = 0;            // most between two ranks
  uint32_t row_bytes = 0;       // most
  uint32_t rows_per_chunk = 1;  // a chunk is one message
  uint32_t header_bytes = 0;    // most

  uint32_t chunks_of(uint32_t of_rows) const { return (of_rows + rows_per_chunk - 1) / rows_per_chunk; }
  uint32_t chunks() const { return chunks_of(rows); }
  uint64_t chunk_bytes() const { return uint64_t{rows_per_chunk} * row_bytes; }
  uint64_t from(uint32_t slot, uint32_t destination) const {
    return rows_from.at(slot, from_block.empty() ? destination : from_block[destination]);
  }
  uint64_t to(uint32_t slot, uint32_t destination, uint32_t self) const {
    return rows_to.at(slot, to_block.empty() ? self : to_block[destination]);
  }
};

struct Places {
  // Rows from rank to rank, and behind these rows from node to node. An operation has one sort of rows.
  KindPlaces kinds[2 * num_kinds];

  const KindPlaces& operator[](Kind kind) const { return kinds[static_cast<uint32_t>(kind)]; }
  KindPlaces& between_nodes(Kind kind) { return kinds[num_kinds + static_cast<uint32_t>(kind)]; }
  // command: of a kind that exists.
  const KindPlaces& of(const Command& command) const {
    return kinds[command.kind() + ((command.flags() & between_nodes_flag) != 0 ? num_kinds : 0)];
  }
  // Most in an operation of the kind, of any sort.
  uint32_t chunks(uint32_t kind) const { return std::max(kinds[kind].chunks(), kinds[num_kinds + kind].chunks()); }
};

const char* kind_name(Kind kind);

// Error(ucclEpInvalidArgument) where an area goes beyond its window, Error(ucclEpNotSupported) where a command or an
// immediate cannot name all rows.
void check_places(const Places& places, uint32_t ranks, uint32_t in_flight, std::span<const uint64_t> window_bytes);

}  // namespace ucclep::proxy
