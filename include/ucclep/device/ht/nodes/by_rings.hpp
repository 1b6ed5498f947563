// SPDX-License-Identifier: Apache-2.0
// HT between nodes in groups with rings: what AcrossNodes has, but for how rows and sums land, and that it need not ask
// whether they do so in rings. Kernels of their own, so that those of other groups stay as they are. Such groups have
// no masks.
#pragma once
#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/ht/nodes/ring_combine.hpp"
#include "ucclep/device/ht/nodes/ring_dispatch.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

struct ByRings : AcrossNodes {
  static constexpr bool rings = true;

  // Of a whole operation. A dispatch may have others pending that began before it.
  static UCCLEP_FN void end(const Op& op, bool ok, bool) {
    if (!end_operation(op, every_thread(ok) && all_in(op), true)) return;
    tell({op.group, op.kind, op.name, last_read(op, op.seq), op.slot});
  }

  static UCCLEP_FN bool header_stored(const Op& op, uint32_t peer, uint32_t rows, uint32_t packets) {
    return op.has_window(peer) || network::push_header(op, lane_id() == 0, peer, rows, packets, ring::flags);
  }
  static UCCLEP_FN bool push_run(const Op& op, const HtDispatchArgs& args, uint32_t begin, uint32_t end) {
    return relay::push_run<false>(op.with(args.group), memory_of(args), args, begin, end,
                                  [](const Op&) { return ring::flags; });
  }
  static UCCLEP_FN const char* staged_row(const Op& op, const WireShape& wire, uint32_t source, const char* meta) {
    if (op.has_window(source)) return OneNode::staged_row(op, wire, source, meta);
    return relay::row_at_relay(op, wire, source, meta,
                               [&](uint32_t place) { return ring::shape_of(op).position_of(place); });
  }
  static UCCLEP_FN bool relay_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    return relay::relay_rows<false>(
        args, op, worker, ring::shape_of(op).rows_per_chunk,
        [&](const HtDispatchArgs& now, const Op& here, uint32_t block, uint32_t first, uint32_t end) {
          return ring::relay_run<true>(now, here, stage, block, first, end);
        });
  }
  static UCCLEP_FN bool pull_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    return ring::pull_rows<ByRings>(args, op, stage, worker);
  }

  // Sums stay where they land, until they are added up.
  static UCCLEP_FN bool bring_sums(const HtCombineArgs&, const Op&, Stage&, const Worker&) { return true; }
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
