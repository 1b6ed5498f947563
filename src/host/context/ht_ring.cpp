// SPDX-License-Identifier: Apache-2.0
#include "host/context/ht_ring.hpp"

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
  if (shape.networked == 0 || shape.masked != 0 || !asked.any()) return 0;
  return landing_with(shape, asked.chunks) < landing_with(shape, 0) ? asked.chunks : 0;
}

uint32_t relay_ring_chunks(const AskedRing& asked, const GroupShape& shape) {
  return shape.relay_stages == 0 || shape.ring != 0 || !asked.any() ? 0 : asked.chunks;
}

}  // namespace ucclep
