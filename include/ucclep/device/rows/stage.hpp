// SPDX-License-Identifier: Apache-2.0
// A warp's piece of shared memory, through which rows move (protocol P16: a row never has to fit). Its slots hold a
// usual row, whose pieces are all under way at once; a longer one goes through them in turn.
#pragma once
#include <cstdint>

#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

class Stage {
 public:
  // Block verb: every warp gets its part of the block's shared memory. bulk: bulk loads come through it.
  explicit UCCLEP_FN Stage(uint32_t piece_bytes, bool bulk = true) : piece_(piece_bytes) {
    base_ = static_cast<char*>(shared_memory()) + StageShape::bytes_per_warp(piece_bytes) * warp_id();
    if (!bulk) return;
    if (lane_id() < StageShape::barriers) bulk_barrier_init(barrier(lane_id()));
    sync_block();
  }

  // Block verb, where the kernel goes on after its last Stage of so many bytes: the shared memory may hold something
  // else, another Stage too.
  static UCCLEP_FN void end(uint32_t piece_bytes) {
    const Stage was(piece_bytes, false);
    if (lane_id() < StageShape::barriers) bulk_barrier_end(was.barrier(lane_id()));
    sync_block();
  }

  UCCLEP_FN uint32_t piece_bytes() const { return piece_; }
  UCCLEP_FN char* slot(uint32_t i) const { return base_ + uint64_t{i % slots} * piece_; }
  UCCLEP_FN char* scratch() const { return base_ + uint64_t{slots} * piece_; }
  UCCLEP_FN char* scales() const { return scratch() + StageShape::scratch_bytes; }
  // The first of them, one per slot, are the stage's own.
  UCCLEP_FN BulkBarrier* barrier(uint32_t i) const {
    return reinterpret_cast<BulkBarrier*>(scales() + StageShape::scales_bytes) + i;
  }
  // Words that lane 0 alone reads and writes.
  UCCLEP_FN uint32_t* turns() const {
    return reinterpret_cast<uint32_t*>(scales() + StageShape::scales_bytes + StageShape::barrier_bytes);
  }
  // What follows the stages of a block's warps.
  UCCLEP_FN char* beyond() const {
    return static_cast<char*>(shared_memory()) + StageShape::bytes_per_warp(piece_) * block::warps();
  }

  // Warp verbs. fetch begins to read `bytes` (a multiple of 16) at src; drain, with the same arguments, calls
  // put(piece, offset, bytes) for each piece when it is in shared memory, and put may start bulk_stores from it.
  UCCLEP_FN void fetch(const char* src, uint64_t bytes) {
    bulk_wait_read();  // stores of an earlier row may still read the slots
    for (uint64_t i = 0; i < slots && i * piece_ < bytes; ++i) load(src, i * piece_, bytes);
  }
  template <class Put>
  UCCLEP_FN void drain(const char* src, uint64_t bytes, Put&& put) {
    for (uint64_t offset = 0; offset < bytes; offset += piece_) {
      put(arrived(), offset, length(offset, bytes));
      refill(src, offset, bytes);
    }
  }
  // The steps of drain: the next piece, once it is there; and, when stores have been started from it, a later one into
  // its slot.
  UCCLEP_FN char* arrived() {
    bulk_wait_loaded(barrier(waited_ % slots), waited_ / slots & 1);
    char* piece = slot(waited_);
    waited_ += 1;
    return piece;
  }
  UCCLEP_FN void refill(const char* src, uint64_t offset, uint64_t bytes) {
    const uint64_t next = offset + uint64_t{slots} * piece_;
    if (next >= bytes) return;
    bulk_wait_read();
    load(src, next, bytes);
  }

 private:
  static constexpr uint32_t slots = StageShape::slots;

  UCCLEP_FN uint32_t length(uint64_t offset, uint64_t bytes) const {
    const uint32_t piece = piece_;
    return static_cast<uint32_t>(bytes - offset < piece ? bytes - offset : piece);
  }
  UCCLEP_FN void load(const char* src, uint64_t offset, uint64_t bytes) {
    bulk_load(slot(loaded_), src + offset, length(offset, bytes), barrier(loaded_ % slots));
    loaded_ += 1;
  }

  char* base_;
  WarpUniform piece_;
  WarpUniform loaded_ = 0, waited_ = 0;  // pieces so far: modulo slots the slot, above that the barrier's phase
};

}  // namespace UCCLEP_SIMT_NAMESPACE
