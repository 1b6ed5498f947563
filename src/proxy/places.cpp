// SPDX-License-Identifier: Apache-2.0
#include "proxy/places.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "proxy/command_limits.hpp"
#include "proxy/immediate.hpp"

namespace ucclep::proxy {
namespace {

void check_area(const char* kind, const char* what, const Area& area, uint64_t block, uint32_t blocks,
                uint32_t in_flight, std::span<const uint64_t> window_bytes) {
  if (block == 0) return;
  if (area.window >= window_bytes.size()) {
    fail(ucclEpInvalidArgument, "{}: the {} lie in window {}, but the group has {} windows", kind, what, area.window,
         window_bytes.size());
  }
  const uint64_t end = area.at(in_flight - 1, blocks - 1) + block;
  if (end > window_bytes[area.window]) {
    fail(ucclEpInvalidArgument, "{}: the {} of {} ranks and {} operations end at byte {}, but the window has {} bytes",
         kind, what, blocks, in_flight, end, window_bytes[area.window]);
  }
}

uint32_t blocks_of(const std::vector<uint32_t>& block, uint32_t ranks) {
  return block.empty() ? ranks : 1 + *std::ranges::max_element(block);
}

}  // namespace

const char* kind_name(Kind kind) {
  constexpr const char* names[num_kinds] = {"update", "dispatch", "combine"};
  return static_cast<uint32_t>(kind) < num_kinds ? names[static_cast<uint32_t>(kind)] : "unknown";
}

void check_places(const Places& places, uint32_t ranks, uint32_t in_flight, std::span<const uint64_t> window_bytes) {
  if (ranks == 0 || in_flight < 2 || in_flight > max_in_flight) {
    fail(ucclEpInvalidArgument,
         "the group has {} ranks and {} operations in flight: expected at least 1 rank and 2 to {} operations", ranks,
         in_flight, max_in_flight);
  }
  for (uint32_t k = 0; k < std::size(places.kinds); ++k) {
    const KindPlaces& kind = places.kinds[k];
    const char* name = kind_name(static_cast<Kind>(k % num_kinds));
    if (kind.rows_per_chunk == 0 || kind.row_bytes % 16 != 0 || kind.header_bytes % 16 != 0) {
      fail(ucclEpInvalidArgument,
           "{}: a chunk has {} rows, a row {} bytes and a header {}: expected at least 1 row and multiples of 16 bytes",
           name, kind.rows_per_chunk, kind.row_bytes, kind.header_bytes);
    }
    check_command_limits({.ranks = ranks,
                          .places = kind.rows,
                          .rows_per_command = std::min(kind.rows_per_chunk, kind.rows),
                          .bytes_per_command = std::max<uint64_t>(kind.chunk_bytes(), kind.header_bytes)});
    const uint64_t rows = uint64_t{kind.rows} * kind.row_bytes;
    check_area(name, "rows to send", kind.rows_from, rows, blocks_of(kind.from_block, ranks), in_flight, window_bytes);
    check_area(name, "rows to receive", kind.rows_to, rows, blocks_of(kind.to_block, ranks), in_flight, window_bytes);
    check_area(name, "headers to send", kind.header_from, kind.header_bytes, ranks, in_flight, window_bytes);
    check_area(name, "headers to receive", kind.header_to, kind.header_bytes, ranks, in_flight, window_bytes);
  }
}

}  // namespace ucclep::proxy
