// SPDX-License-Identifier: Apache-2.0
// What combine is in both modes (ll/combine.hpp, ht/combine.hpp): the rank that holds the experts sums its copies of a
// row and sends one partial row home; home adds the partials of the ranks. One arithmetic tree (protocol P6): experts
// ascending in fp32, rounded once per rank to the token type, ranks ascending in fp32, bias, one final rounding. No
// fused multiply-add; each sum starts with its first term. `place` of a partial row is its index among the rows that
// its home sent here.
#pragma once
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

template <class Element>
UCCLEP_FN void add_bias(Vector<Element>& sum, const View& bias, uint32_t token, uint32_t offset) {
  if (bias.data) sum.add(Vector<Element>::unpack(load16(bias.at(0, token) + offset)));
}

// Lane verb: 16 bytes of a result.
template <class Element>
UCCLEP_FN void store_result(const CombineArgs& args, Vector<Element>& sum, uint32_t token, uint32_t offset) {
  add_bias(sum, args.bias, token, offset);
  add_bias(sum, args.bias2, token, offset);
  store16_stream(args.output.at(0, token) + offset, sum.pack());
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
