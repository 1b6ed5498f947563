// SPDX-License-Identifier: Apache-2.0
// How the scopes of a grid share work.
#pragma once
#include "rounds/kernels/arguments.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

struct RowRange {
  uint32_t first, last;
};

// The scopes of a grid, numbered so that neighbours are in different blocks.
template <class Coop>
struct Scopes {
  static UCCLEP_FN uint32_t count() { return block_size() / Coop::size() * grid_size(); }
  static UCCLEP_FN uint32_t mine() { return thread_id() / Coop::size() * grid_size() + block_id(); }
};

// Part `index` of `parts`, which differ by one row at most.
UCCLEP_FN RowRange part_of(uint32_t rows, uint32_t index, uint32_t parts) {
  return {static_cast<uint32_t>(uint64_t{rows} * index / parts),
          static_cast<uint32_t>(uint64_t{rows} * (index + 1) / parts)};
}

// A scope's part of what all scopes share.
template <class Coop>
UCCLEP_FN RowRange my_part(uint32_t rows) {
  return part_of(rows, Scopes<Coop>::mine(), Scopes<Coop>::count());
}

// Which zones a scope takes: with fewer scopes than zones every `step`-th, else one together with others.
template <class Coop>
struct ZoneShares {
  uint32_t first, step, index, parts;

  UCCLEP_FN ZoneShares(uint32_t zones) {
    const uint32_t scopes = Scopes<Coop>::count(), mine = Scopes<Coop>::mine();
    parts = scopes > zones ? scopes / zones : 1;
    step = scopes > zones ? zones : scopes;
    first = mine % step;
    index = mine / step;
    if (index >= parts) first = zones;  // one that is left over
  }
  UCCLEP_FN RowRange part(uint32_t rows) const { return part_of(rows, index, parts); }
};

}  // namespace UCCLEP_SIMT_NAMESPACE
