// SPDX-License-Identifier: Apache-2.0
// Torn mode: links that keep no more of a store whole than 8 or 16 bytes. Not even the stores of one lane to one line
// become visible in order, and until a release some do long after others.
#include <atomic>

#include "device/host/runtime.hpp"
#include "device/host/schedule.hpp"

namespace ucclep::executor {
namespace {

constexpr size_t max_parts = 4096;

void write(const TornPart& part) {
  if (part.bytes == 8) return std::atomic_ref(part.to[0]).store(part.words[0], std::memory_order_relaxed);
  // Whole for readers that look at the second word first.
  std::atomic_ref(part.to[0]).store(part.words[0], std::memory_order_relaxed);
  std::atomic_ref(part.to[1]).store(part.words[1], std::memory_order_release);
}

void write_and_forget(Block& block, size_t index) {
  TornParts& torn = block.torn;
  write(torn.list()[index]);
  torn.list()[index] = torn.list()[--torn.count];
  note_store();
}

void keep(Block& block, const TornPart& part) {
  TornParts& torn = block.torn;
  if (torn.count == max_parts) write_and_forget(block, block.worker->random() % torn.count);
  torn.list()[torn.count++] = part;
}

}  // namespace

void reserve_torn(Block& block) {
  if (block.torn.memory.bytes() == 0) block.torn.memory = Pages(max_parts * sizeof(TornPart));
}

void advance_torn(Block& block) {
  constexpr int looks = 4;
  Worker& worker = *block.worker;
  ++block.events;  // the worker must not sleep before all are seen
  for (int i = 0; i < looks && block.torn.count != 0; ++i) {
    const size_t index = worker.random() % block.torn.count;
    if (worker.random() % block.torn.list()[index].one_in == 0) write_and_forget(block, index);
  }
}

void store_torn(uint64_t* to, uint64_t first, uint64_t second) {
  Lane& me = self();
  Block& block = *me.in->block;
  // Some are seen soon, others when much else is: both find mistakes.
  const auto one_in = [&]() -> uint32_t { return block.worker->random() % 2 == 0 ? 1 : 512; };
  if (me.torn == 16) return keep(block, {to, {first, second}, 16, one_in()});
  keep(block, {to, {first, 0}, 8, one_in()});
  keep(block, {to + 1, {second, 0}, 8, one_in()});
}

void flush_torn() {
  Block& block = *self().in->block;
  while (block.torn.count != 0) write_and_forget(block, block.torn.count - 1);
}

}  // namespace ucclep::executor
