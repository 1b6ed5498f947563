// SPDX-License-Identifier: Apache-2.0
// The repair of HT operations (recovery/repair.hpp). A rank that is lost in an Update counts as its header says, if
// that came, or has no rows. Of one that is lost in a dispatch all rows count if they were all staged, or else none:
// then rows that were announced are zero rows with weight 0 and topk_idx -1. The second run pulls from its window,
// which outlives it. By the network rows come here, and all of them count when they have.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/receive.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/recovery/repair.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace recovery {

// Rows that are to come, of those that the handle counts: where ranks differed in the Update nobody sends any.
UCCLEP_FN uint32_t expected_rows(const HandleMemory& memory, uint32_t rows) {
  return memory.state()->updated == memory.handle.stamp ? rows : 0;
}

// Warp verb: READY of a dispatch or combine.
UCCLEP_FN bool ready_has_come(const Op& op, uint32_t source) {
  return have_come(op, header_packets(op, op.me(), source), HeaderLayout::packets(OfferWords::count));
}

UCCLEP_FN void after_update(const HtUpdateArgs& args) {
  const Op op = next_operation(args.group, Kind::update, Operation::update, OpState::load(args.group, Kind::update));
  const auto decide = [&](uint32_t rank, const GraceTimer& timer) {
    const uint32_t packets = HeaderLayout::packets(op.group.shape.local_experts());
    FromNetwork from;
    const Received received = wait_or_mask(op, rank, timer, [&] {
      if (!op.has_window(rank)) return from.received(op, rank);
      return have_come(op, header_packets(op, op.me(), rank), packets) ? Received::all : Received::nothing;
    });
    return received == Received::all ? op.seq : 0;
  };
  repair(op, memory_of(args), decide);
}

// Warp verb: all rows of a dispatch are staged. This rank's own were, by the send phase.
UCCLEP_FN bool staged_rows_have_come(const Op& op, const HandleMemory& memory, uint32_t source) {
  const uint32_t rows = expected_rows(memory, memory.rows_from()[source]);
  bool all = true;
  for (uint32_t place = lane_id(); place < rows; place += wave_size) {
    const char* epoch = ht::landed_meta(op, source, place) + MetaLayout::of(op.group.shape.top_k).epoch;
    all = all && load_acquire<Scope::system>(reinterpret_cast<const uint64_t*>(epoch)) == op.seq;
  }
  return every_lane(all);
}

UCCLEP_FN void after_dispatch(const HtDispatchArgs& args) {
  const Op op =
      next_operation(args.group, Kind::dispatch, Operation::dispatch, OpState::load(args.group, Kind::dispatch));
  const auto decide = [&](uint32_t rank, const GraceTimer& timer) {
    FromNetwork from;
    const Received received = wait_or_mask(op, rank, timer, [&] {
      if (!op.has_window(rank)) return from.received(op, rank);
      if (!ready_has_come(op, rank)) return Received::nothing;
      return staged_rows_have_come(op, memory_of(args), rank) ? Received::all : Received::header;
    });
    return received == Received::all ? op.seq : 0;
  };
  repair(op, memory_of(args), decide);
}

// Warp verb: all partial rows of a rank are staged. Of this rank's own there may be none.
UCCLEP_FN bool partials_have_come(const Op& op, const HandleMemory& memory, uint32_t rank) {
  const uint32_t rows = rank == op.me() ? 0 : expected_rows(memory, memory.rows_to()[rank]);
  const auto* words = reinterpret_cast<const uint64_t*>(op.mine() + op.group.layout.back_epochs_of(op.slot, rank));
  bool all = true;
  for (uint32_t run = lane_id(); run * run_rows < rows; run += wave_size) {
    all = all && load_acquire<Scope::system>(words + run) == op.seq;
  }
  return every_lane(all);
}

UCCLEP_FN void after_combine(const HtCombineArgs& args) {
  const Op op = next_operation(args.group, Kind::combine, Operation::combine, OpState::load(args.group, Kind::combine));
  const auto decide = [&](uint32_t rank, const GraceTimer& timer) {
    FromNetwork from;
    wait_or_mask(op, rank, timer, [&] {
      if (!op.has_window(rank)) return from.received(op, rank);
      if (!ready_has_come(op, rank)) return Received::nothing;
      return partials_have_come(op, memory_of(args), rank) ? Received::all : Received::header;
    });
    return uint64_t{0};
  };
  repair(op, memory_of(args), decide);
}

}  // namespace recovery
}  // namespace UCCLEP_SIMT_NAMESPACE
