// SPDX-License-Identifier: Apache-2.0
// What combine is in both modes (ll_combine.hpp, ht_combine.hpp): the rank that holds the experts sums its copies of a
// row and sends one partial row home; home adds the partials of the ranks. One arithmetic tree (protocol P6): experts
// ascending in fp32, rounded once per rank to the token type, ranks ascending in fp32, bias, one final rounding. No
// fused multiply-add; each sum starts with its first term. `place` of a partial row is its index among the rows that
// its home sent here.
#pragma once
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/simt/element.hpp"

namespace ucclep {

// What LL looks at on its way comes first: a kernel fetches its arguments line by line, when it needs them.
struct CombineArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  View tokens;           // the experts' rows, laid out as dispatch's output
  uint64_t capacity;     // rows of `tokens` (HT) or of a slab (LL); rows at or past it count as zero
  uint32_t output_rows;  // T, as the host has it
  Zones zones;
  bool ranked;        // RANK_MAJOR
  bool weighted;      // products with weights: forward LL EXPERT_MAJOR
  bool late_weights;  // P7: those of this combine
  bool announced;     // with masks: READY and late weights have left in a launch before this one, and its mend has
                      // settled whom rows may count on (P12): who waits for weights keeps its rows from all others
  bool weights_back;  // backward, with weight_rows
  bool opened;        // of a second half: the first was a user's kernel
  uint32_t row_bytes;
  Divisor ranks, batches;  // of the group; of a row in LINE form
  uint32_t piece_bytes;
  uint32_t partial_bytes;  // HT: of a row on its way home, behind which are its weights, if there are any
  Settings settings;
  View output;       // [T, H]
  View bias, bias2;  // [T, H] or not given
  View wait_ns;
  View topk_weights;  // f32 [T, K], if given here (LL EXPERT_MAJOR)
  View weight_rows;   // backward: f32, a row's weights as dispatch put them out. Their sums: f32 [T, K]
  View weights_out;
};

// Percent of the blocks of an LL combine that send: they read and sum several rows for one that they send.
constexpr uint32_t ll_combine_sends = 70;

// May an LL combine go by ll_combine_few.hpp? It takes any number of rows, but gains where there is a warp for each
// batch of all that may come, should the peers have as many tokens as this rank. A warp has to see READY of all ranks
// at a look. Peers need not decide alike.
UCCLEP_HD constexpr bool ll_rows_are_few(const CombineArgs& args, uint32_t blocks, uint32_t warps, uint32_t wave) {
  const uint64_t sending = uint64_t{blocks} * ll_combine_sends / 100 * warps,
                 batches = uint64_t{args.output_rows} * ceil_div(args.row_bytes, line_batch_bytes);
  return args.group.shape.ranks * batches <= sending && batches <= uint64_t{blocks} * warps - sending &&
         2 * args.group.shape.ranks <= wave && args.zones == Zones::slabs && !args.late_weights && !args.weights_back;
}

}  // namespace ucclep

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
