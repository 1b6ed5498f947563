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
// | sums of other nodes, or with   | combine_recv        | wait_row (network.hpp)            |
// |   masks partial rows, by a NIC |                     |                                   |
// | combine_recv: the results      | the scope, after it | the scope's sync                  |
//
// Floor: as combine's (ht_combine.hpp).
#pragma once
#include "ucclep/device/ht_combine.hpp"
#include "ucclep/device/ht/pool.hpp"
#include "ucclep/device/user/receive.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// The partial rows of one token that are terms of their own, ranks ascending: where they are staged, in windows that
// are mapped here, or with masks where they have landed. NULL: nothing is left of one.
struct StagedPartials {
  const char* rows[max_top_k];
  uint32_t count = 0;

  // Lane verb: waits until they are there.
  UCCLEP_FN bool wait(const OpenCombine& open, const Op& op, uint32_t token) {
    const WindowLayout& window = op.group.layout;
    const Returns from(open, token);
    for (uint32_t i = 0; i < from.count; ++i) {
      const uint32_t rank = from.ranks[i], place = from.places[i];
      if (lands_alone(op, rank)) {
        if (!network::wait_row(op, rank, place, between_nodes_flag)) return false;
        rows[count++] = relay::sum_in(op, open.shape.token_bytes(), relay::nodes_of(op).node_of(rank), place);
        continue;
      }
      if (network::is_away(op, rank)) continue;
      const uint64_t words = window.back_epochs_of(op.slot, rank);
      if (!wait_word(op, Phase::rows, rank, op.mine() + words + 8 * uint64_t{place / run_rows})) return false;
      rows[count++] =
          staged_partial(op, open.shape.token_bytes(), {rank, op.me(), place}, window.back_places_of(op.slot, rank));
    }
    return true;
  }
};

// Lane verb: 16 bytes of a row, of one of which nothing is left zeros.
template <class Element>
UCCLEP_FN Vector<Element> term_of(const char* row, uint32_t at) {
  return Vector<Element>::unpack(row == nullptr ? vec16{} : load16(row + at));
}

// Lane verb: 16 bytes of what these add up to.
template <class Element>
UCCLEP_FN TermSum<Element> sum_here(const StagedPartials& from, uint32_t at) {
  TermSum<Element> sum;
  for (uint32_t i = 0; i < from.count; ++i) sum.add(term_of<Element>(from.rows[i], at));
  return sum;
}

// The same between domains: the own node's ranks are rounded together, and nodes added, ascending (P6).
template <class Element>
UCCLEP_FN TermSum<Element> sum_nodes(const StagedPartials& from, const NodeSums& away, uint32_t at) {
  const TermSum<Element> own = sum_here<Element>(from, at);
  TermSum<Element> sum;
  for (uint32_t i = 0; i < away.before; ++i) sum.add(term_of<Element>(away.rows[i], at));
  if (own.begun) sum.add(Vector<Element>::unpack(own.sum.pack()));
  for (uint32_t i = away.before; i < away.count; ++i) sum.add(term_of<Element>(away.rows[i], at));
  return sum;
}

// Verb of members of a scope: the result of one token. sum(at): 16 bytes of its terms.
template <class Element, class Coop, class Sum>
UCCLEP_FN void store_token(const OpenCombine& open, const CombineRows& out, uint32_t token, Sum&& sum) {
  const uint32_t bytes = open.shape.token_bytes();
  const void* const biases[] = {out.bias, out.bias2};
  for (uint32_t at = 16 * Near<Coop>::rank(); at < bytes; at += 16 * Near<Coop>::size()) {
    TermSum<Element> result = sum(at);
    result.begun = true;  // also where the token has no expert: the bias is added to zero
    for (const void* const bias : biases) {
      if (bias == nullptr) continue;
      result.add(Vector<Element>::unpack(load16(row_at(const_cast<void*>(bias), token, bytes) + at)));
    }
    store16(row_at(out.tokens, token, bytes) + at, result.sum.pack());
  }
}

// Verb of members of a scope: the same, once its terms are there.
template <class Coop>
UCCLEP_FN bool receive_token(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t token) {
  StagedPartials from;
  if (!from.wait(open, op, token)) return false;
  NodeSums away;
  if (relays(op) && !away.wait(open, op, token)) return false;
  with_element(open.shape.dtype, [&](auto element) {
    using Element = decltype(element);
    if (relays(op)) {
      store_token<Element, Coop>(open, out, token, [&](uint32_t at) { return sum_nodes<Element>(from, away, at); });
    } else {
      store_token<Element, Coop>(open, out, token, [&](uint32_t at) { return sum_here<Element>(from, at); });
    }
  });
  return true;
}

// Verb of the scope, after combine_end: the results of tokens [first, last) to `out`; waits until they are there, at
// most the group's timeout. Every token is asked for exactly once, by any scope, in any order and block; tokens past
// the last that was routed have no result. lanes<N>: all groups of a warp call it together, with first = last where
// there is nothing to do. False: the operation has failed, or ranks disagree and there are no results.
template <class Coop>
UCCLEP_FN bool combine_recv(Coop, const OpenCombine& open, const CombineRows& out, uint32_t first, uint32_t last) {
  return receive_tokens<Coop>(open, first, last, [&](const Op& op, uint32_t begin, uint32_t end) {
    for (uint32_t token = begin + Near<Coop>::index(); token < end; token += Near<Coop>::count()) {
      if (!receive_token<Coop>(open, op, out, token)) return false;
    }
    return true;
  });
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
