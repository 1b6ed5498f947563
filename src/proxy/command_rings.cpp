// SPDX-License-Identifier: Apache-2.0
#include "proxy/command_rings.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/best_effort.hpp"
#include "base/error.hpp"

namespace ucclep::proxy {
namespace {

constexpr uint32_t max_rings_log2 = 8, max_capacity_log2 = 20;
// 64 KiB: more commands than are under way between a GPU and a proxy that keeps up.
constexpr uint32_t usual_capacity_log2 = 12;

uint32_t capacity_log2_of(const RingsShape& shape) {
  if (shape.capacity_log2 != 0) return shape.capacity_log2;
  // Half of the ring above the mark, half below.
  return std::max<uint32_t>(usual_capacity_log2, std::bit_width(2 * uint64_t{shape.max_concurrent} - 1));
}

void check(const RingsShape& shape) {
  if (shape.bulk_log2 > max_rings_log2 || shape.control_log2 > max_rings_log2) {
    fail(ucclEpInvalidArgument, "cannot create 2^{} bulk and 2^{} control rings: expected at most 2^{} of each",
         shape.bulk_log2, shape.control_log2, max_rings_log2);
  }
  const uint32_t log2 = capacity_log2_of(shape);
  if (log2 > max_capacity_log2 || shape.max_concurrent == 0 || shape.max_concurrent >= uint64_t{1} << log2) {
    fail(ucclEpInvalidArgument,
         "lanes may push {} commands at the same time to a ring of 2^{}: expected 1 to 2^{} less one",
         shape.max_concurrent, log2, std::min(log2, max_capacity_log2));
  }
}

}  // namespace

void CommandRings::Free::operator()(void* data) const {
  best_effort("proxy", "the command rings were not freed", [&] { (device->*how)(data); });
}

CommandRings::CommandRings(Device& device, const RingsShape& shape, uint64_t timeout_ns, const uint32_t* abort_word) {
  check(shape);
  fifo_.bulk_log2 = shape.bulk_log2;
  fifo_.control_log2 = shape.control_log2;
  fifo_.capacity_log2 = capacity_log2_of(shape);
  fifo_.high_water = (1u << fifo_.capacity_log2) - shape.max_concurrent;
  fifo_.timeout_ns = timeout_ns;
  fifo_.abort_word = abort_word;
  const Free host{&device, &Device::free_host}, here{&device, &Device::free};
  const size_t slots = (size_t{count()} << fifo_.capacity_log2) * sizeof(Packet);
  const size_t words = count() * fifo_stride * sizeof(uint64_t);
  slots_ = Owned<Packet>(static_cast<Packet*>(device.alloc_host(slots)), host);
  positions_ = Owned<uint64_t>(static_cast<uint64_t*>(device.alloc_host(words)), host);
  heads_ = Owned<uint64_t>(static_cast<uint64_t*>(device.alloc(words)), here);
  fifo_.slots = slots_.get();
  fifo_.positions = positions_.get();
  fifo_.heads = heads_.get();
}

RingMemory CommandRings::memory(uint32_t ring) const {
  return {fifo_.slots + (size_t{ring} << fifo_.capacity_log2), positions_.get() + size_t{ring} * fifo_stride,
          fifo_.capacity_log2};
}

uint64_t CommandRings::host_bytes(const RingsShape& shape) {
  const uint64_t count = (uint64_t{1} << shape.bulk_log2) + (uint64_t{1} << shape.control_log2);
  return count * ((sizeof(Packet) << capacity_log2_of(shape)) + fifo_stride * sizeof(uint64_t));
}

uint64_t CommandRings::stalls() const {
  uint64_t sum = 0;
  for (uint32_t ring = 0; ring < count(); ++ring) {
    uint64_t& stalls = positions_.get()[ring * fifo_stride + fifo_stalls_word];
    sum += std::atomic_ref(stalls).load(std::memory_order_relaxed);
  }
  return sum;
}

// The head is in the device's memory: what lies behind a reader's position is counted up to the first empty slot.
uint64_t CommandRings::waiting() const {
  const uint64_t capacity = uint64_t{1} << fifo_.capacity_log2;
  uint64_t sum = 0;
  for (uint32_t ring = 0; ring < count(); ++ring) {
    const RingMemory of_ring = memory(ring);
    const uint64_t first = std::atomic_ref(*of_ring.position).load(std::memory_order_relaxed);
    for (uint64_t i = 0; i < capacity; ++i, ++sum) {
      const uint64_t half =
          std::atomic_ref(of_ring.slots[(first + i) & (capacity - 1)].value).load(std::memory_order_relaxed);
      if ((half ^ lap_parity(first + i, fifo_.capacity_log2)) >> command_field::parity_shift != 0) break;
    }
  }
  return sum;
}

}  // namespace ucclep::proxy
