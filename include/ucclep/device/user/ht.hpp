// SPDX-License-Identifier: Apache-2.0
// What HT dispatch (ht_open_dispatch.hpp) and combine (ht_open_combine.hpp) share when a user's kernel opens them. It
// sends READY, and stages rows in this rank's window; the second half waits for the peers' READY, and pulls. What
// groups whose ranks are in several domains need beside that, they get at run time (ht_open_network.hpp).
#pragma once
#include "ucclep/device/user/ht_nodes.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

UCCLEP_FN Settings open_settings(const HandleMemory& memory, const RowShape& shape) {
  Settings s;
  s.hidden = shape.hidden;
  s.top_k = memory.state()->top_k;
  s.mode = UCCLEP_MODE_HT;
  s.layout = static_cast<uint32_t>(memory.handle.layout);
  s.alignment_log2 = first_lane(memory.handle.expert_alignment);
  s.dtype = s.output_dtype = static_cast<uint32_t>(shape.dtype);
  s.pass = static_cast<uint32_t>(shape.pass);
  return s;
}

// An operation that begins; ok: its slots are free.
struct Begun {
  Op op;
  bool ok;

  UCCLEP_FN HandleMemory memory(const ucclEpDeviceHandle& handle) const { return {handle.view, handle.group.shape}; }

  // Block verb of every block: READY to all, nothing lent.
  UCCLEP_FN bool ready_out(const ucclEpDeviceHandle& handle, const Settings& settings) const {
    if (!ok || block_id() != 0) return ok;
    const HandleMemory mine = memory(handle);
    auto* words = reinterpret_cast<uint32_t*>(mine.scratch_of_warp());
    const Worker worker{warp_id(), block::warps()};
    if (!networked(op)) return lend_out<OneNode>(op, mine, settings, {}, words, worker);
    return every_thread(lend_out<AcrossNodesOfLiving>(op, mine, settings, {}, words, worker));
  }
};

// Block verb of every block. Where ranks disagreed in the Update no rank has a routing, and none opens anything; nor a
// combine of what was not dispatched.
UCCLEP_FN Begun begin(const ucclEpDeviceHandle& handle, const RowShape& shape, Kind kind, Operation name) {
  Opening opening = Opening::of(handle.group, kind);
  const Op op = open_next(handle, kind, name, opening);
  const HandleState& state = *HandleMemory{handle.view, handle.group.shape}.state();
  bool ok = op.seq != 0 && fits(op, handle, shape, UCCLEP_MODE_HT, state.top_k);
  const bool ready = state.updated == handle.view.stamp && (kind != Kind::combine || state.capacity != not_dispatched);
  if (ok && !ready) {
    if (thread_id() == 0) report_data(op.group.errors, record_of(op, ucclEpInvalidArgument, Phase::unrouted, -1));
    ok = false;
  }
  return {op, ok && open_slots_free(op, opening)};
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE
