// SPDX-License-Identifier: Apache-2.0
// Weights on their way home, in the backward pass: a rank has for each row that it received the gradients of the
// weights that came with it, and home adds up those of all ranks, in the order of P6. In LL they travel as packets of
// their own (ll/weight_rows.hpp), in HT behind the partial row (ht/weight_rows.hpp).
#pragma once
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/protocol/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

// Warp verb: lane k's weight of a received row, in the order of the source's selections. 0: it has none here.
UCCLEP_FN float weight_of_row(const HandleMemory& memory, const CombineArgs& args, uint32_t home, uint32_t place) {
  const uint32_t k = lane_id(), top_k = args.settings.top_k;
  if (args.zones == Zones::sources) {
    const uint64_t row = uint64_t{memory.recv_base()[home]} + place;
    if (k >= top_k || row >= args.capacity) return 0;
    return *reinterpret_cast<const float*>(args.weight_rows.at(0, static_cast<int64_t>(row), k));
  }
  const uint32_t count = uniform(memory.recv_count(home)[place]);
  RecvEntry entry{};
  float copy = 0, weight = 0;
  if (k < count) entry = memory.recv_entries(home, place)[k];
  if (k < count && entry.row < args.capacity) {
    copy =
        *reinterpret_cast<const float*>(args.weight_rows.at(args.zones == Zones::slabs ? entry.expert : 0, entry.row));
  }
  UCCLEP_KEEP_LOOP
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t selection = broadcast(entry.k, i);
    const float of_selection = broadcast(copy, i);
    if (selection == k) weight = of_selection;
  }
  return weight;
}

// A sum that begins with its first term.
struct WeightSum {
  float sum = 0;
  bool begun = false;

  UCCLEP_FN void add(float term) {
    sum = begun ? sum + term : term;
    begun = true;
  }
};

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
