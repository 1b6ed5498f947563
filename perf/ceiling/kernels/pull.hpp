// SPDX-License-Identifier: Apache-2.0
// Combine at its simplest: a token's rows are pulled from the ranks that hold them, summed in fp32 in the order of the
// ranks, and written as bf16.
#pragma once
#include "ceiling/kernels/push.hpp"
#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Pieces of rows on their way to one warp. While a stage is summed, the loads of the next one are under way.
class PullStages {
 public:
  UCCLEP_FN PullStages(const CeilingCopyArgs& args) : args_(args) {
    const uint32_t barriers = ceiling_pull_stages * args.ranks;
    auto* shared = static_cast<unsigned char*>(shared_memory());
    barriers_ = reinterpret_cast<BulkBarrier*>(shared) + warp_id() * barriers;
    data_ = shared + ceiling_barrier_bytes(barriers * block::warps()) + warp_id() * ceiling_pull_warp_bytes(args.ranks);
    if (lane_id() == 0) {
      for (uint32_t i = 0; i < barriers; ++i) bulk_barrier_init(barriers_ + i);
    }
    sync_block();
    pieces_ = (args.row_bytes + ceiling_pull_piece - 1) / ceiling_pull_piece;
  }

  UCCLEP_FN uint32_t units() const { return args_.tokens * pieces_; }

  UCCLEP_FN void load(uint32_t unit, uint32_t stage) {
    const size_t token = unit / pieces_;
    const int32_t place = lane_id() < args_.ranks ? args_.places[token * args_.ranks + lane_id()] : -1;
    const auto there = static_cast<uint32_t>(ballot(place >= 0));
    sources_ = (sources_ & ~(0xffffu << 16 * stage)) | there << 16 * stage;
    for (uint32_t i = 0; i < args_.ranks; ++i) {
      const uint32_t peer = (args_.rank + 1 + i) % args_.ranks;
      const int32_t row = broadcast(place, peer);
      if (row < 0) continue;
      const unsigned char* rows = args_.windows[peer] + args_.first_input * args_.input_stride;
      bulk_load(at(stage, peer), rows + static_cast<size_t>(row) * args_.row_bytes + offset(unit), bytes(unit),
                barriers_ + stage * args_.ranks + peer);
    }
  }

  UCCLEP_FN void sum(uint32_t unit, uint32_t stage) {
    const uint32_t sources = sources_ >> 16 * stage;
    for (uint32_t r = 0; r < args_.ranks; ++r) {
      if ((sources >> r & 1) == 0) continue;
      const uint32_t barrier = stage * args_.ranks + r;
      bulk_wait_loaded(barriers_ + barrier, phases_ >> barrier & 1);
      phases_ ^= 1u << barrier;
    }
    unsigned char* out = args_.output + unit / pieces_ * size_t{args_.row_bytes} + offset(unit);
    for (uint32_t i = lane_id() * 16; i < bytes(unit); i += wave_size * 16) {
      Vector<Bf16> total{};
      for (uint32_t r = 0; r < args_.ranks; ++r) {
        if ((sources >> r & 1) != 0) total.add(Vector<Bf16>::unpack(load16(at(stage, r) + i)));
      }
      store16_stream(out + i, total.pack());
    }
    sync_warp();  // all lanes have read the stage before it is loaded again
  }

 private:
  UCCLEP_FN unsigned char* at(uint32_t stage, uint32_t rank) const {
    return data_ + (stage * args_.ranks + rank) * ceiling_pull_piece;
  }
  UCCLEP_FN uint32_t offset(uint32_t unit) const { return unit % pieces_ * ceiling_pull_piece; }
  UCCLEP_FN uint32_t bytes(uint32_t unit) const {
    const uint32_t left = args_.row_bytes - offset(unit);
    return left < ceiling_pull_piece ? left : ceiling_pull_piece;
  }

  const CeilingCopyArgs& args_;
  BulkBarrier* barriers_;
  unsigned char* data_;
  uint32_t pieces_;
  uint32_t phases_ = 0;   // a bit per barrier
  uint32_t sources_ = 0;  // ranks that a stage has pieces of, 16 bits each
  static_assert(ceiling_pull_stages == 2 && ceiling_max_ranks <= 16);
};

UCCLEP_FN void pull_rows(const CeilingCopyArgs& args) {
  PullStages stages(args);
  const uint32_t units = stages.units(), warps = grid_warps();
  if (grid_warp() < units) stages.load(grid_warp(), 0);
  uint32_t stage = 0;
  for (uint32_t unit = grid_warp(); unit < units; unit += warps) {
    if (unit + warps < units) stages.load(unit + warps, stage ^ 1);
    stages.sum(unit, stage);
    stage ^= 1;
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
