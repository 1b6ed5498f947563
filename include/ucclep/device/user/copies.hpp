// SPDX-License-Identifier: Apache-2.0
// Copies of a row in EXPERT_MAJOR, on their way home from a user's kernel. A rank sends one partial row for each row
// that it received, the sum of its copies for the local experts (protocol P6). The scope that sends the last copy adds
// them up, experts ascending, so the sum does not depend on who that is.
//
// | who writes                 | who reads                   | ordered by                      |
// |----------------------------|-----------------------------|---------------------------------|
// | all_here: where a copy is  | the all_here of the last    | the row's ticket (acq_rel, gpu) |
#pragma once
#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Of a row that this rank received: whose it is.
struct Home {
  uint32_t rank, place;
  uint32_t expert;  // local, whose copy it is; in EXPERT_MAJOR
  bool valid;       // false: dispatch put nothing there
};

// Lane verb: an entry of a received row. Others who receive a copy of the row may write the same.
UCCLEP_FN RecvEntry load_entry(const RecvEntry* entry) {
  const auto* const words = reinterpret_cast<const uint64_t*>(entry);
  const uint64_t low = load_relaxed<Scope::gpu>(words), high = load_relaxed<Scope::gpu>(words + 1);
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), float_of(static_cast<uint32_t>(high)),
          static_cast<uint32_t>(high >> 32)};
}

// What a partial row is made of.
struct Copies {
  const char* one;           // the caller's
  const char** rows;         // all, once they are here; NULL: there is no other, and it goes as it is
  uint32_t* in;              // how many are here so far
  const RecvEntry* entries;  // of the received row
  uint32_t count;
  bool weighted;  // each times its entry's weight

  // A row that has no copies: the partial row itself.
  static UCCLEP_FN Copies none(const void* row) {
    return {static_cast<const char*>(row), nullptr, nullptr, nullptr, 1, false};
  }

  UCCLEP_FN uint64_t word(uint32_t i, uint32_t at) const {
    return *reinterpret_cast<const uint64_t*>((count == 1 ? one : rows[i]) + at);
  }
};

// Lane verb: 8 bytes of the sum of the copies.
template <class Element>
UCCLEP_FN uint64_t sum_word(const Copies& copies, uint32_t at) {
  if (copies.rows == nullptr) return copies.word(0, at);
  TermSum<Element> sum;
  for (uint32_t i = 0; i < copies.count; ++i) {
    auto term = sum.unpack(copies.word(i, at));
    if (copies.weighted) term.scale(load_entry(copies.entries + i).weight);
    sum.add(term);
  }
  return sum.packed();
}

// Lane verb of the scope's first, whose copy has been left: is it the last?
UCCLEP_FN bool is_last(const Copies& copies) {
  if (fetch_add_acq_rel<Scope::gpu>(copies.in, uint32_t{1}) + 1 != copies.count) return false;
  store_relaxed<Scope::gpu>(copies.in, uint32_t{0});  // for the next combine
  return true;
}
// The same of one that leaves it for the scope that sends the last.
UCCLEP_FN bool leave_copy(const Home& home, const Copies& copies) {
  for (uint32_t i = 0; i < copies.count; ++i) {
    if (load_entry(copies.entries + i).expert == home.expert) copies.rows[i] = copies.one;
  }
  return is_last(copies);
}

// Verb of the scope, once for each copy: are all here now, for this scope to add up?
template <class Coop>
UCCLEP_FN bool all_here(const Home& home, const Copies& copies) {
  Coop::sync();  // the copy is whole before it is left
  bool here = home.valid && copies.count == 1;
  if (home.valid && copies.count > 1 && Coop::rank() == 0) here = leave_copy(home, copies);
  here = Coop::any(here);
  Coop::sync();  // what the first has acquired, all have
  return here;
}

}  // namespace UCCLEP_SIMT_NAMESPACE

// Whose a row of HT EXPERT_MAJOR is, and where its copies wait for the last one, while a user's kernel combines
// (ht_combine.hpp). A handle says the reverse: where the copies of a received row are.
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
