// SPDX-License-Identifier: Apache-2.0
// HT combine received by a user's kernel, the one that sent it: who goes on with a token waits for its rows alone.
//
//   ht::combine_recv(warp{}, op, out, first_token, last_token);   each token of the routing once
// after combine_end in the same block, instead of ucclEpCompleteCombine (open_receive.hpp says when the operation
// ends). All ranks may do so, or some.
//
// | who writes                     | who reads           | ordered by                        |
// |--------------------------------|---------------------|-----------------------------------|
// | the peers' staged partial rows | combine_recv        | the run's word (publish, acquire) |
// | combine_recv: the results      | the scope, after it | the scope's sync                  |
//
// Floor: as combine's (ht_combine.hpp).
#pragma once
#include "ucclep/device/ht_open_combine.hpp"
#include "ucclep/device/ht_pool.hpp"
#include "ucclep/device/open_receive.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// The partial rows of one token where they are staged, ranks ascending; NULL: nothing is left of one.
struct StagedPartials : Returns {
  const char* rows[max_top_k];

  UCCLEP_FN StagedPartials(const OpenCombine& open, uint32_t token) : Returns(open, token) {}

  // Lane verb: waits until they are there.
  UCCLEP_FN bool wait(const OpenCombine& open, const Op& op) {
    const WindowLayout& window = op.group.layout;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t words = window.back_epochs_of(op.slot, ranks[i]);
      if (!wait_word(op, Phase::rows, ranks[i], op.mine() + words + 8 * uint64_t{places[i] / run_rows})) return false;
      rows[i] = staged_partial(op, open.shape.token_bytes(), {ranks[i], op.me(), places[i]},
                               window.back_places_of(op.slot, ranks[i]));
    }
    return true;
  }
};

// Verb of members of a scope: the result of one token.
template <class Element, class Coop>
UCCLEP_FN void sum_token(const OpenCombine& open, const CombineRows& out, uint32_t token, const StagedPartials& from) {
  const uint32_t bytes = open.shape.token_bytes();
  const void* const biases[] = {out.bias, out.bias2};
  for (uint32_t at = 16 * Near<Coop>::rank(); at < bytes; at += 16 * Near<Coop>::size()) {
    TermSum<Element> sum;
    for (uint32_t i = 0; i < from.count; ++i) {
      sum.add(Vector<Element>::unpack(from.rows[i] == nullptr ? vec16{} : load16(from.rows[i] + at)));
    }
    sum.begun = true;  // also where the token has no expert: the bias is added to zero
    for (const void* const bias : biases) {
      if (bias == nullptr) continue;
      sum.add(Vector<Element>::unpack(load16(row_at(const_cast<void*>(bias), token, bytes) + at)));
    }
    store16(row_at(out.tokens, token, bytes) + at, sum.sum.pack());
  }
}

// Verb of the scope, after combine_end: the results of tokens [first, last) to `out`; waits until they are there, at
// most the group's timeout. Every token is asked for exactly once, by any scope, in any order and block; tokens past
// the last that was routed have no result. lanes<N>: all groups of a warp call it together, with first = last where
// there is nothing to do. False: the operation has failed, or ranks disagree and there are no results.
template <class Coop>
UCCLEP_FN bool combine_recv(Coop, const OpenCombine& open, const CombineRows& out, uint32_t first, uint32_t last) {
  return receive_tokens<Coop>(open, first, last, [&](const Op& op, uint32_t begin, uint32_t end) {
    for (uint32_t token = begin + Near<Coop>::index(); token < end; token += Near<Coop>::count()) {
      StagedPartials from(open, token);
      if (!from.wait(open, op)) return false;
      with_element(open.shape.dtype, [&](auto element) { sum_token<decltype(element), Coop>(open, out, token, from); });
    }
    return true;
  });
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
