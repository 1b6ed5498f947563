// SPDX-License-Identifier: Apache-2.0
// A warp's piece of shared memory, through which rows move (protocol P16: a row never has to fit). Two slots of
// piece_bytes: while one is being sent, the next piece is loaded into the other.
#pragma once
#include "ucclep/device/line.hpp"

namespace ucclep {

// How a launch divides shared memory. piece_bytes is a multiple of 1920: of 128 (a quantisation group), of 16, and of
// the 120 bytes that a 128-byte line carries.
struct StageShape {
  static constexpr uint32_t piece_unit = 1920;
  static constexpr uint32_t scratch_bytes = 512;  // a meta line, or pointers and weights of up to 32 rows
  static constexpr uint32_t barrier_bytes = 128;
  static UCCLEP_HD constexpr uint64_t bytes_per_warp(uint32_t piece_bytes) {
    return round_up(2ull * piece_bytes + scratch_bytes + barrier_bytes, 128);
  }
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

class Stage {
 public:
  // Block verb: every warp gets its part of the block's shared memory.
  explicit UCCLEP_FN Stage(uint32_t piece_bytes) : piece_(piece_bytes) {
    base_ = static_cast<char*>(shared_memory()) + StageShape::bytes_per_warp(piece_bytes) * warp_id();
    if (lane_id() == 0) {
      bulk_barrier_init(barrier(0));
      bulk_barrier_init(barrier(1));
    }
    sync_block();
  }

  UCCLEP_FN uint32_t piece_bytes() const { return piece_; }
  UCCLEP_FN char* slot(uint32_t i) const { return base_ + uint64_t{i & 1} * piece_; }
  UCCLEP_FN char* scratch() const { return base_ + 2ull * piece_; }

  // Warp verb: reads `bytes` (a multiple of 16) at src piece by piece; put(piece, offset, bytes) gets each as it is in
  // shared memory, and may start bulk_stores from it.
  template <class Put>
  UCCLEP_FN void stream(const char* src, uint64_t bytes, Put&& put) {
    bulk_wait_read();  // stores of an earlier row may still read the slots
    if (bytes > 0) load(src, 0, bytes);
    for (uint64_t offset = 0; offset < bytes; offset += piece_) {
      if (offset + piece_ < bytes) {
        bulk_wait_read();  // stores of the previous piece read the slot that is loaded now
        load(src, offset + piece_, bytes);
      }
      bulk_wait_loaded(barrier(waited_), waited_ >> 1 & 1);
      put(slot(waited_), offset, length(offset, bytes));
      ++waited_;
    }
  }

 private:
  UCCLEP_FN BulkBarrier* barrier(uint32_t i) const {
    return reinterpret_cast<BulkBarrier*>(base_ + 2ull * piece_ + StageShape::scratch_bytes) + (i & 1);
  }
  UCCLEP_FN uint32_t length(uint64_t offset, uint64_t bytes) const {
    return static_cast<uint32_t>(bytes - offset < piece_ ? bytes - offset : piece_);
  }
  UCCLEP_FN void load(const char* src, uint64_t offset, uint64_t bytes) {
    bulk_load(slot(loaded_), src + offset, length(offset, bytes), barrier(loaded_));
    ++loaded_;
  }

  char* base_;
  uint32_t piece_;
  uint32_t loaded_ = 0, waited_ = 0;  // pieces so far: the slot is their parity, the barrier's phase the next bit
};

}  // namespace UCCLEP_SIMT_NAMESPACE
