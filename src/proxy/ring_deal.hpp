// SPDX-License-Identifier: Apache-2.0
// Which proxy thread owns what: the rings of a group are dealt over threads so that all that concerns a destination
// belongs to one of them (fifo.hpp, bulk_ring). With more threads than rings some own nothing.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ucclep/device/layout/command.hpp"

namespace ucclep::proxy {

constexpr uint32_t deal_bits(const Fifo& fifo) {
  return std::min(fifo.bulk_log2, fifo.control_log2);
}
constexpr uint32_t thread_of_destination(const Fifo& fifo, uint32_t destination, uint32_t threads) {
  return fifo_hash(destination, deal_bits(fifo)) * threads >> deal_bits(fifo);
}
constexpr uint32_t thread_of_ring(const Fifo& fifo, uint32_t ring, uint32_t threads) {
  const uint32_t bulk = 1u << fifo.bulk_log2;
  const uint32_t group =
      ring < bulk ? ring >> (fifo.bulk_log2 - deal_bits(fifo)) : (ring - bulk) >> (fifo.control_log2 - deal_bits(fifo));
  return group * threads >> deal_bits(fifo);
}

}  // namespace ucclep::proxy
