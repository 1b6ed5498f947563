// SPDX-License-Identifier: Apache-2.0
// Copies of a row in EXPERT_MAJOR, on their way home from a user's kernel. A rank sends one partial row for each row
// that it received, the sum of its copies for the local experts (protocol P6). Whoever brings the last copy adds them
// up, experts ascending, so the sum does not depend on who that is.
//
// | who writes                 | who reads                   | ordered by                      |
// |----------------------------|-----------------------------|---------------------------------|
// | all_here: where a copy is  | the all_here of the last    | the row's ticket (acq_rel, gpu) |
#pragma once
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/user/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Of a row that this rank received: whose it is.
struct Home {
  uint32_t rank, place;
  uint32_t expert;  // local, whose copy it is; in EXPERT_MAJOR
  bool valid;       // false: dispatch put nothing there
};

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
    if (copies.weighted) term.scale(copies.entries[i].weight);
    sum.add(term);
  }
  return sum.packed();
}

// Lane verb of the scope's first: leaves its copy for whoever brings the last. True: that is this one.
UCCLEP_FN bool leave_copy(const Home& home, const Copies& copies) {
  for (uint32_t i = 0; i < copies.count; ++i) {
    if (copies.entries[i].expert == home.expert) copies.rows[i] = copies.one;
  }
  if (fetch_add_acq_rel<Scope::gpu>(copies.in, uint32_t{1}) + 1 != copies.count) return false;
  store_relaxed<Scope::gpu>(copies.in, uint32_t{0});  // for the next combine
  return true;
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
