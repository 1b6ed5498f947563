// SPDX-License-Identifier: Apache-2.0
// Weights of the backward pass in HT: they lie behind a partial row wherever that is staged or summed, and are complete
// when it is. A row that is read where the caller has it, as a rank's own in FLAT, has them where the caller has them.
#pragma once
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/sum_ring.hpp"
#include "ucclep/device/rows/weight_rows.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Of the terms of a sum, where the weights are; NULL: of a row of zeros. In shared memory, behind the terms.
UCCLEP_FN const float** weights_of(const Terms& terms) {
  return reinterpret_cast<const float**>(terms.rows + max_top_k);
}
static_assert(2 * sizeof(char*) * max_top_k <= StageShape::scratch_bytes);

// Lane verb: those of a partial row.
UCCLEP_FN float* weights_behind(const char* row, uint32_t row_bytes) {
  return reinterpret_cast<float*>(const_cast<char*>(row) + row_bytes);
}

// Warp verb: lane k's weight behind the partial row that is being staged.
UCCLEP_FN void stage_weights(const HandleMemory& memory, const HtCombineArgs& args, char* row, uint32_t home,
                             uint32_t place) {
  const float weight = combining::weight_of_row(memory, args, home, place);
  if (lane_id() < memory.shape.top_k) weights_behind(row, args.row_bytes)[lane_id()] = weight;
  sync_warp();
}

// Warp verb: the sum of the weights of all terms, a selection a lane, to `to`.
UCCLEP_FN void sum_weights(const Terms& terms, uint32_t top_k, float* to) {
  const float** const from = weights_of(terms);
  combining::WeightSum sum;
  UCCLEP_KEEP_LOOP
  for (uint32_t i = 0; i < terms.count; ++i) {
    if (from[i] != nullptr && lane_id() < top_k) sum.add(from[i][lane_id()]);
  }
  if (lane_id() < top_k) to[lane_id()] = sum.sum;
  sync_warp();  // the caller may write new terms
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
