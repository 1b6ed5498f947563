// SPDX-License-Identifier: Apache-2.0
// In how much room rows of HT land that come from other nodes, and sums that come back: a group has room for all of a
// round, or rings of chunks where these are asked for (ucclep/device/ht/nodes/ring.hpp).
#pragma once
#include <cstdint>
#include <string>

#include "ucclep/device/layout/window.hpp"

namespace ucclep {

// UCCLEP_HT_RING, UCCLEP_HT_RELAY_RING.
struct AskedRing {
  static constexpr uint32_t automatic = 0xffffffff, off = 0;
  uint32_t chunks = automatic;

  bool any() const { return chunks != automatic && chunks != off; }
  std::string text() const;
};

// Of a rank, in a group of that shape, with its rings if it has them.
uint64_t landing_bytes(const GroupShape& shape);

// GroupShape::ring of a group that has none yet. 0: none, also where they would take as much room as all that may come.
uint32_t ring_chunks(const AskedRing& asked, const GroupShape& shape);

// GroupShape::relay_ring. Its reader empties it as it fills, so few chunks do.
uint32_t relay_ring_chunks(const AskedRing& asked, const GroupShape& shape);

}  // namespace ucclep
