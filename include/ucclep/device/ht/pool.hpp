// SPDX-License-Identifier: Apache-2.0
// Where the partial rows of HT combine are staged. A group without a limit of rows received has rows for every place of
// every home. In one with a limit all homes share a pool of so many rows: a partial row takes that row of the pool that
// its first copy has in the output, which no other one has, and the copy warp says so beside the word that announces
// it.
#pragma once
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Of a partial row: who has staged it, for whom, and its place among those for this home.
struct Staged {
  uint32_t rank, home, place;
};

// Which row of the pool a partial row takes. no_place: none, since every copy was dropped.
UCCLEP_FN uint32_t pool_row(const HandleMemory& memory, const HtCombineArgs& args, uint32_t home, uint32_t place) {
  uint64_t row = uint64_t{memory.recv_base()[home]} + place;
  if (args.zones != Zones::sources) row = memory.recv_entries(home, place)[0].row;  // of the lowest expert
  return row < args.capacity ? static_cast<uint32_t>(row) : no_place;
}

// Lane verb, once the row's run is announced. bytes: of a partial row. places: in this rank's window, what the copy
// warp said. NULL: nothing is left of it.
UCCLEP_FN const char* staged_partial(const Op& op, uint32_t bytes, const Staged& at, uint64_t places) {
  const WindowLayout& window = op.group.layout;
  const char* const rows = op.window(at.rank);
  if (op.group.shape.pool_rows == 0) {
    return rows + window.back_rows_of(op.slot, at.home) + uint64_t{at.place} * bytes;
  }
  const uint32_t row = reinterpret_cast<const uint32_t*>(op.mine() + places)[at.place];
  return row == no_place ? nullptr : rows + window.pool_of(op.slot) + uint64_t{row} * bytes;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
