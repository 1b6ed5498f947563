// SPDX-License-Identifier: Apache-2.0
// Sums of an LL combine, and rows that are moved without one: a warp has batches of several rows, or several of one, on
// their way to its registers together.
#pragma once
#include <cstdint>

#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

// Terms of one sum, in the stage's scratch: row addresses, and weights where there are any.
struct Terms {
  const char** rows;
  float* weights;
  uint32_t count;

  static UCCLEP_FN Terms in(char* scratch) {
    return {reinterpret_cast<const char**>(scratch), reinterpret_cast<float*>(scratch + 8 * max_top_k), 0};
  }
};

// A warp's batch of a sum. Lanes whose packet holds an epoch have only the first half of their vector.
template <class Element>
struct BatchSum {
  Vector<Element> sum[LineBatch::steps] = {};
  bool begun = false;

  UCCLEP_FN void add(const LineBatch& batch, float weight, bool weighted) {
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < LineBatch::steps; ++s) {
      const Packet& p = batch.part[s];
      Vector<Element> term =
          Vector<Element>::unpack({static_cast<uint32_t>(p.value), static_cast<uint32_t>(p.value >> 32),
                                   static_cast<uint32_t>(p.epoch), static_cast<uint32_t>(p.epoch >> 32)});
      if (weighted) term.scale(weight);
      if (begun) {
        sum[s].add(term);
      } else {
        sum[s] = term;
      }
    }
    begun = true;
  }
  UCCLEP_FN LineBatch rounded() const {
    LineBatch batch;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < LineBatch::steps; ++s) {
      const vec16 v = sum[s].pack();
      batch.part[s] = {v.x | uint64_t{v.y} << 32, v.z | uint64_t{v.w} << 32};
    }
    return batch;
  }
};

// Terms of a batch that are on their way to a warp together, as many as its registers hold.
template <uint32_t terms>
struct GroupOf {
  static constexpr uint32_t most = terms;
  LineBatch term[most];
};
template <class Forms>
using TermGroup = GroupOf<Forms::bulk ? 1 : 2>;

// Warp verb: the sum of each batch of the range, to put(index, sum). While some terms are added the next ones come.
// terms: look(group, index, first) begins to read terms first, first + 1, .. of batch index, wait(group, index, first)
// waits until they are there. Of terms past the last there is nothing, not even zeros.
template <class Element, class TermsOfRow, class Put>
UCCLEP_FN bool sum_batches(const TermsOfRow& terms, const BatchRange& range, Put&& put) {
  using Group = typename TermsOfRow::Group;
  Group next;
  terms.look(next, range.begin, 0);
  for (WarpUniform index = range.begin; index < range.end; index += 1) {
    BatchSum<Element> sum;
    uint32_t first = 0;
    do {
      if (!terms.wait(next, index, first)) return false;
      const Group group = next;
      const uint32_t added = first;
      first += Group::most;
      const bool of_next = first >= terms.count();
      if (!of_next || index + 1 < range.end) {
        terms.look(next, of_next ? index + 1 : uint32_t{index}, of_next ? 0 : first);
      }
      UCCLEP_UNROLL
      for (uint32_t i = 0; i < Group::most; ++i) {
        if (added + i >= terms.count()) break;
        sum.add(group.term[i], terms.weight(added + i), TermsOfRow::weighted);
      }
    } while (first < terms.count());
    put(index, sum);
  }
  return true;
}

// Warp verb: the sum of one batch, while no other comes: by fewer instructions. may(): asked when terms are on their
// way, before any is waited for; false: the end.
template <class Element, class TermsOfRow, class May, class Put>
UCCLEP_FN bool sum_batch(const TermsOfRow& terms, uint32_t index, May&& may, Put&& put) {
  using Group = typename TermsOfRow::Group;
  Group group;
  BatchSum<Element> sum;
  for (uint32_t first = 0; first == 0 || first < terms.count(); first += Group::most) {
    terms.look(group, index, first);
    if (!may() || !terms.wait(group, index, first)) return false;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < Group::most; ++i) {
      if (first + i >= terms.count()) break;
      sum.add(group.term[i], terms.weight(first + i), TermsOfRow::weighted);
    }
  }
  put(index, sum);
  return true;
}

// The copies of one row on this rank, as terms of its partial row.
template <class TermsTogether>
struct CopyTerms {
  using Group = TermsTogether;
  static constexpr bool weighted = true;
  const Terms& terms;
  uint32_t row_bytes;

  UCCLEP_FN uint32_t count() const { return terms.count; }
  UCCLEP_FN float weight(uint32_t i) const { return terms.weights[i]; }
  UCCLEP_FN void look(Group& group, uint32_t index, uint32_t first) const {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < Group::most; ++i) {
      if (first + i >= terms.count) break;
      group.term[i].read(terms.rows[first + i] + index * line_batch_bytes, batch_length(row_bytes, index));
    }
  }
  UCCLEP_FN bool wait(const Group&, uint32_t, uint32_t) const { return true; }
};

// Warp verb: batches of a row as they stand, several under way together; put(index, batch).
template <class Forms, class Put>
UCCLEP_FN void copy_batches(const char* row, uint32_t row_bytes, const BatchRange& range, Put&& put) {
  UCCLEP_KEEP_LOOP
  for (uint32_t index = range.begin; index < range.end; index += TermGroup<Forms>::most) {
    TermGroup<Forms> group;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < TermGroup<Forms>::most; ++i) {
      const uint32_t begin = (index + i) * line_batch_bytes;
      if (index + i < range.end) group.term[i].read(row + begin, batch_length(row_bytes, index + i));
    }
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < TermGroup<Forms>::most; ++i) {
      if (index + i < range.end) put(index + i, group.term[i]);
    }
  }
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
