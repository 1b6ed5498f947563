// SPDX-License-Identifier: Apache-2.0
// HT between nodes in groups with rings: what AcrossNodes has, but for how rows and sums land. Kernels of their own, so
// that those of other groups stay as they are. Such groups have no masks.
#pragma once
#include "ucclep/device/ht_network.hpp"
#include "ucclep/device/ht_ring_combine.hpp"
#include "ucclep/device/ht_ring_dispatch.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

struct ByRings : AcrossNodes {
  static constexpr bool rings = true;

  // Of a whole operation. A dispatch may have others pending that began before it.
  static UCCLEP_FN void end(const Op& op, bool ok, bool) {
    if (!end_operation(op, every_thread(ok) && all_in(op), true)) return;
    tell({op.group, op.kind, op.name, last_read(op, op.seq), op.slot});
  }

  static UCCLEP_FN const char* staged_row(const Op& op, const WireShape& wire, uint32_t source, const char* meta) {
    if (op.has_window(source)) return OneNode::staged_row(op, wire, source, meta);
    return relay::row_at_relay(op, wire, source, meta,
                               [&](uint32_t place) { return ring::shape_of(op).position_of(place); });
  }
  static UCCLEP_FN bool pull_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    return ring::pull_rows<ByRings>(args, op, stage, worker);
  }

  template <class Element>
  static UCCLEP_FN bool sum_own_node(const Op& op, const HandleMemory& memory, const HtCombineArgs& args,
                                     uint32_t token, SumRing& ring, Terms& terms) {
    return relay::sum_own_node<Element, ring::InRing>(op, memory, args, token, ring, terms);
  }
  static UCCLEP_FN void sums_read(const HtCombineArgs& args, const Op& op, uint32_t token) {
    ring::sums_read(op.with(args.group), memory_of(args), token);
  }
};

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
