// SPDX-License-Identifier: Apache-2.0
// Sums of rows, wherever they lie: pieces of all terms go through a warp's shared memory in the order in which they are
// added, as many under way at once as it holds. The latency of the memory, or of a link, is paid once per sum.
#pragma once
#include <cstdint>

#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Terms of one sum, in the order of addition.
struct Terms {
  const char** rows;  // in shared memory
  uint32_t count;
  uint64_t zero;  // bit i: term i is a row of zeros, and has no address
};

// A warp uses its part of shared memory as a Stage or as a SumRing, one after the other.
class SumRing {
 public:
  explicit UCCLEP_FN SumRing(const Stage& stage) : stage_(stage) {}

  struct Unscaled {
    template <class Term>
    UCCLEP_FN void operator()(const Term&, uint32_t) const {}
  };

  // Warp verb: done(offset, sum) for each 16 bytes of the sum, each on one lane. scale(term, i): what term i is before
  // it is added.
  template <class Element, class Done, class Scale = Unscaled>
  UCCLEP_FN void sum(const Terms& terms, uint32_t bytes, Done&& done, Scale&& scale = {}) {
    Cursor next{0, 0};
    for (uint32_t begin = 0; begin < bytes; begin += piece) {
      Vector<Element> sum[vectors] = {};
      UCCLEP_KEEP_LOOP
      for (uint32_t i = 0; i < terms.count; ++i) {
        load_ahead(terms, bytes, next);
        const bool zero = (terms.zero >> i & 1) != 0;
        const char* from = zero ? nullptr : arrived();
        const auto term = [&](uint32_t v) {
          Vector<Element> read = Vector<Element>::unpack(zero ? vec16{} : load16(from + offset_of(v)));
          scale(read, i);
          return read;
        };
        if (i == 0) {
          UCCLEP_UNROLL
          for (uint32_t v = 0; v < vectors; ++v) sum[v] = term(v);
        } else {
          UCCLEP_UNROLL
          for (uint32_t v = 0; v < vectors; ++v) sum[v].add(term(v));
        }
      }
      UCCLEP_UNROLL
      for (uint32_t v = 0; v < vectors; ++v) {
        const uint32_t offset = begin + offset_of(v);
        if (offset < bytes) done(offset, sum[v]);
      }
    }
    sync_warp();  // the caller may write new terms
  }

 private:
  // Large pieces: what there is to do for a piece costs as much as to add up a kilobyte.
  static constexpr uint32_t slots = 4, vectors = StageShape::piece_unit / (wave_size * 16);  // of a piece, on each lane
  static constexpr uint32_t piece = vectors * wave_size * 16;
  static_assert(slots * piece <= StageShape::slots * StageShape::piece_unit);
  static constexpr uint32_t first_barrier = StageShape::slots;  // those before are the Stage's
  static_assert(first_barrier + slots <= StageShape::barriers);

  // What is loaded next: that piece of that term.
  struct Cursor {
    uint32_t begin, term;
  };

  static UCCLEP_FN uint32_t offset_of(uint32_t vector) { return (vector * wave_size + lane_id()) * 16; }

  UCCLEP_FN char* slot(uint32_t index) const { return stage_.slot(0) + index % slots * piece; }
  UCCLEP_FN BulkBarrier* barrier(uint32_t index) const { return stage_.barrier(first_barrier + index % slots); }

  UCCLEP_FN void load_ahead(const Terms& terms, uint32_t bytes, Cursor& next) {
    while (next.begin < bytes && loaded_ - waited_ < slots) {
      if ((terms.zero >> next.term & 1) == 0) {
        const uint32_t length = bytes - next.begin < piece ? bytes - next.begin : piece;
        bulk_load(slot(loaded_), terms.rows[next.term] + next.begin, length, barrier(loaded_));
        loaded_ += 1;
      }
      if (++next.term < terms.count) continue;
      next = {next.begin + piece, 0};
    }
  }
  UCCLEP_FN const char* arrived() {
    bulk_wait_loaded(barrier(waited_), waited_ / slots & 1);
    const char* at = slot(waited_);
    waited_ += 1;
    return at;
  }

  const Stage& stage_;
  WarpUniform loaded_ = 0, waited_ = 0;  // pieces so far
};

}  // namespace UCCLEP_SIMT_NAMESPACE
