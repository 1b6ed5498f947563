// SPDX-License-Identifier: Apache-2.0
// Whose a row of HT EXPERT_MAJOR is, and where its copies wait for the last one, while a user's kernel combines
// (ht_open_combine.hpp). A handle says the reverse: where the copies of a received row are.
#pragma once
#include "ucclep/device/user/copy_tables.hpp"
#include "ucclep/device/user/copies.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Typed access to CopyTables.
struct CopyMemory {
  const ucclEpDeviceHandle& handle;
  CopyTables tables;

  explicit UCCLEP_FN CopyMemory(const ucclEpDeviceHandle& of) : handle(of), tables(CopyTables::of(of.group.shape)) {}
  UCCLEP_FN uint64_t received(uint32_t source, uint32_t place) const {
    return uint64_t{source} * handle.view.tokens + place;
  }
  UCCLEP_FN uint32_t* in(uint32_t source, uint32_t place) const {
    return reinterpret_cast<uint32_t*>(handle.copies + tables.in) + received(source, place);
  }
  UCCLEP_FN uint32_t* homes(uint32_t local_expert) const {
    return reinterpret_cast<uint32_t*>(handle.copies + tables.homes) +
           received(handle.group.shape.ranks, 0) * local_expert;
  }
  UCCLEP_FN const char** rows(uint32_t source, uint32_t place) const {
    return reinterpret_cast<const char**>(handle.copies + tables.rows) +
           received(source, place) * handle.group.shape.top_k;
  }
};

// Grid verb: rows of a zone that masked ranks were to send.
UCCLEP_FN void forget_masked(const Op& op, const ucclEpDeviceHandle& handle, uint32_t expert) {
  if (op.group.masks == nullptr) return;
  const HandleMemory memory{handle.view, handle.group.shape};
  const uint32_t first = block_id() * block_size() + thread_id(), step = grid_size() * block_size();
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    if (!is_masked(op.group, source)) continue;
    const uint32_t base = memory.expert_base(source)[expert] - memory.expert_base(0)[expert];
    for (uint32_t i = first; i < memory.counts_from(source)[expert]; i += step) {
      CopyMemory(handle).homes(expert)[base + i] = no_place;
    }
  }
}

// Grid verb: notes whose each row of the zones is, of those that were dropped as well; those of masked ranks are
// nobody's. After its barrier all may ask. With masks nothing ends the wait for other blocks early: all are to send.
UCCLEP_FN bool note_homes(const Op& op, const ucclEpDeviceHandle& handle) {
  const HandleMemory memory{handle.view, handle.group.shape};
  const CopyMemory copies(handle);
  const uint32_t first = block_id() * block_size() + thread_id(), step = grid_size() * block_size();
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    for (uint32_t place = first; place < memory.rows_from()[source]; place += step) {
      if (is_masked(op.group, source)) continue;
      const RecvEntry* const entries = memory.recv_entries(source, place);
      for (uint32_t i = 0; i < memory.recv_count(source)[place]; ++i) {
        const uint32_t row = entries[i].row - memory.expert_base(0)[entries[i].expert];
        copies.homes(entries[i].expert)[row] = static_cast<uint32_t>(copies.received(source, place));
      }
    }
  }
  for (uint32_t expert = 0; expert < memory.shape.local_experts(); ++expert) forget_masked(op, handle, expert);
  return sync_grid(op, op.group.masks != nullptr ? &op.group.masks->never : op.group.abort_word);
}

// Lane verb: which of `count` ascending numbers is the last that is not above the value; the first is not.
UCCLEP_FN uint32_t last_up_to(const uint32_t* numbers, uint32_t count, uint32_t value) {
  uint32_t low = 0, high = count;  // numbers[low] <= value < numbers[high]
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (numbers[middle] <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Lane verb, after note_homes: of one of the N rows.
UCCLEP_FN Home noted_home(const ucclEpDeviceHandle& handle, uint32_t row_index) {
  const HandleMemory memory{handle.view, handle.group.shape};
  const uint32_t last = memory.shape.ranks - 1, tokens = handle.view.tokens;
  const uint32_t expert = last_up_to(memory.expert_base(0), memory.shape.local_experts(), row_index);
  if (row_index >= memory.expert_base(last)[expert] + memory.counts_from(last)[expert]) return {};  // a pad
  const uint32_t home = CopyMemory(handle).homes(expert)[row_index - memory.expert_base(0)[expert]];
  return home == no_place ? Home{} : Home{home / tokens, home % tokens, expert, true};
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
