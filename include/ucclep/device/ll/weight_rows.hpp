// SPDX-License-Identifier: Apache-2.0
// Weights of the backward pass in LL: packets with the epoch inside, two weights in each, by place. They land where
// weights that come with a forward combine would (P7), in the other direction.
#pragma once
#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/weight_rows.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

UCCLEP_FN uint32_t weight_packets(const GroupShape& shape) {
  return HeaderLayout::weight_packets(shape.top_k);
}

// Warp verb: lane k's value of two selections, as a packet carries them.
UCCLEP_FN uint64_t pair_of(float value) {
  const uint32_t k = lane_id(), bits = float_bits(value);
  const uint32_t even = shfl(bits, 2 * k % wave_size), odd = shfl(bits, (2 * k + 1) % wave_size);
  return uint64_t{even} | uint64_t{odd} << 32;
}

// Warp verb. to: the packets of place 0.
UCCLEP_FN void store_weight_row(const Op& op, const HandleMemory& memory, const CombineArgs& args, uint32_t home,
                                uint32_t place, Packet* to) {
  const uint32_t packets = weight_packets(op.group.shape);
  const uint64_t pair = pair_of(weight_of_row(memory, args, home, place));
  if (lane_id() < packets) store_packet(to + uint64_t{place} * packets + lane_id(), pair, op.seq);
}

// Verb of the job's blocks: to all homes whose windows are mapped here. To others they went with READY.
template <class Wire>
UCCLEP_FN void send_weight_rows(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
  for (uint32_t i = 0; i < op.ranks(); ++i) {
    const uint32_t home = op.rotated(i), rows = memory.rows_from()[home];
    if (Wire::network && !op.has_window(home)) continue;
    if (is_masked<Wire>(op.group, home)) continue;
    auto* to = reinterpret_cast<Packet*>(op.window(home) + op.group.layout.ll_weights_of(op.slot, op.me()));
    for (uint32_t place = job.warp(); place < rows; place += job.warps()) {
      store_weight_row(op, memory, args, home, place, to);
    }
  }
  sync_warp();  // no lane goes on to wait for a peer that may wait for these
}

// Where the weights land that a rank sends with its combine: backward to the home of the rows, forward (P7) from there.
template <class Wire>
UCCLEP_FN const Packet* weights_from(const Op& op, uint32_t rank) {
  if (Wire::network && !op.has_window(rank)) return header_packets(op, op.me(), rank) + HeaderLayout::counts;
  return reinterpret_cast<const Packet*>(op.mine() + op.group.layout.ll_weights_of(op.slot, rank));
}

// Warp verb: the sums of one token.
template <class Wire>
UCCLEP_FN bool sum_weights_of(const Op& op, const HandleMemory& memory, const CombineArgs& args, uint32_t token) {
  const uint32_t packets = weight_packets(op.group.shape), k = lane_id();
  const Selection selection = selection_of(memory, token);
  WeightSum sum;
  uint64_t left = ballot(selection.sends() && !is_masked<Wire>(op.group, selection.rank));
  while (left != 0) {  // ranks ascending
    uint32_t next = first_lane(left);
    for (uint64_t others = left & (left - 1); others != 0; others &= others - 1) {
      const uint32_t lane = first_lane(others);
      if (broadcast(selection.rank, lane) < broadcast(selection.rank, next)) next = lane;
    }
    left &= ~(uint64_t{1} << next);
    const uint32_t rank = broadcast(selection.rank, next), place = broadcast(selection.place, next);
    const Packet* from = weights_from<Wire>(op, rank) + uint64_t{place} * packets;
    uint64_t value = 0;
    bool ok = true;
    if (k < packets) ok = wait_packet(op, Phase::weights, rank, from + k, value);
    if (!every_lane(ok)) return false;
    const uint64_t pair = shfl(value, k / 2);
    sum.add(float_of(static_cast<uint32_t>(k % 2 != 0 ? pair >> 32 : pair)));
  }
  if (k < args.settings.top_k) *reinterpret_cast<float*>(args.weights_out.at(0, token, k)) = sum.sum;
  return true;
}

// Verb of the job's blocks.
template <class Wire>
UCCLEP_FN bool sum_weight_rows(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
  const uint32_t tokens = memory.state()->tokens;
  for (uint32_t token = job.warp(); token < tokens && token < args.output_rows; token += job.warps()) {
    if (!sum_weights_of<Wire>(op, memory, args, token)) return false;
  }
  return true;
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE
