// SPDX-License-Identifier: Apache-2.0
#include "host/context/ht_ring.hpp"

#include <algorithm>
#include <ranges>

namespace ucclep {
namespace {

uint64_t landing_with(GroupShape shape, uint32_t chunks) {
  shape.ring = chunks;
  return landing_bytes(shape);
}

}  // namespace

std::string AskedRing::text() const {
  return chunks == automatic ? "auto" : chunks == off ? "off" : std::to_string(chunks);
}

uint64_t landing_bytes(const GroupShape& shape) {
  const WindowLayout layout = WindowLayout::of(shape);
  return shape.in_flight * (layout.relay_landing * shape.nodes.blocks() + layout.sums_landing * shape.nodes.nodes);
}

uint32_t ring_chunks(const AskedRing& asked, const GroupShape& shape) {
  if (shape.networked == 0 || shape.masked != 0 || asked.chunks == AskedRing::off) return 0;
  const uint64_t all = landing_with(shape, 0);
  uint32_t chunks = asked.chunks;
  if (chunks == AskedRing::automatic) {
    if (all <= max_landing_bytes) return 0;
    const auto larger = std::views::iota(RingShape::min_chunks + 1, RingShape::max_chunks + 1);
    const auto fits = [&](uint32_t some) { return landing_with(shape, some) <= max_landing_bytes; };
    chunks = RingShape::min_chunks + static_cast<uint32_t>(std::ranges::partition_point(larger, fits) - larger.begin());
  }
  return landing_with(shape, chunks) < all ? chunks : 0;
}

uint32_t relay_ring_chunks(const AskedRing& asked, const GroupShape& shape) {
  if (shape.relay_stages == 0 || shape.ring != 0 || asked.chunks == AskedRing::off) return 0;
  return asked.chunks == AskedRing::automatic ? usual_relay_ring : asked.chunks;
}

}  // namespace ucclep
