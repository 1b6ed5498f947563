// SPDX-License-Identifier: Apache-2.0
// In place of what NVIDIA GPUs have from sm_90 on (cuda_sm90.hpp). The warp makes bulk copies itself, 16 bytes a lane,
// by ordinary accesses: they are done when it goes on, and need no fence of a proxy. Included by cuda.hpp.
#pragma once

namespace UCCLEP_SIMT_NAMESPACE {

// ---- Bulk copies: addresses and sizes are multiples of 16 bytes.
struct BulkBarrier {
  uint64_t unused;
};

UCCLEP_FN void bulk_barrier_init(BulkBarrier*) {}
UCCLEP_FN void bulk_barrier_end(BulkBarrier*) {}
UCCLEP_FN void smem_to_bulk() {
  sync_warp();
}
UCCLEP_FN void acquire_then_bulk() {
  sync_warp();
}

// Warp verb. Four accesses of a lane are in flight before the first of them is stored.
template <class Load, class Store>
UCCLEP_FN void copy_by_warp(uint32_t bytes, Load&& load, Store&& store) {
  constexpr uint32_t batch = 4;
  const uint32_t count = bytes / 16;
  uint32_t i = lane_id();
  UCCLEP_KEEP_LOOP
  for (; i + (batch - 1) * wave_size < count; i += batch * wave_size) {
    vec16 values[batch];
    UCCLEP_UNROLL
    for (uint32_t k = 0; k < batch; ++k) values[k] = load(i + k * wave_size);
    UCCLEP_UNROLL
    for (uint32_t k = 0; k < batch; ++k) store(i + k * wave_size, values[k]);
  }
  UCCLEP_KEEP_LOOP
  for (; i < count; i += wave_size) store(i, load(i));
}
// Not inlined: in the place of two instructions they would make the kernels several times as large.
UCCLEP_COLD_FN void copy_in(vec16* shared, const vec16* global, uint32_t bytes) {
  copy_by_warp(
      bytes, [=](uint32_t i) { return load16_stream(global + i); },
      [=](uint32_t i, vec16 value) { store16(shared + i, value); });
}
UCCLEP_COLD_FN void copy_out(vec16* global, const vec16* shared, uint32_t bytes) {
  copy_by_warp(
      bytes, [=](uint32_t i) { return load16(shared + i); },
      [=](uint32_t i, vec16 value) { store16_stream(global + i, value); });
}

UCCLEP_FN void bulk_load(void* shared, const void* global, uint32_t bytes, BulkBarrier*) {
  sync_warp();
  copy_in(static_cast<vec16*>(shared), static_cast<const vec16*>(global), bytes);
}

UCCLEP_FN void bulk_wait_loaded(BulkBarrier*, uint32_t) {
  sync_warp();
}

// Every active lane has a destination of its own; all copy the same source.
UCCLEP_FN void bulk_store(bool active, void* global, const void* shared, uint32_t bytes) {
  UCCLEP_KEEP_LOOP
  for (uint64_t left = ballot(active); left != 0; left &= left - 1) {
    const uint64_t to = shfl(reinterpret_cast<uint64_t>(global), first_lane(left));
    copy_out(reinterpret_cast<vec16*>(to), static_cast<const vec16*>(shared), bytes);
  }
}

UCCLEP_FN void bulk_wait_read() {
  sync_warp();
}
// A release by any lane behind it covers the stores of all lanes.
UCCLEP_FN void bulk_wait_written() {
  sync_warp();
}

// ---- fp8.
UCCLEP_FN uint32_t to_e4m3_pair(float low, float high) {
  return to_e4m3(low) | uint32_t{to_e4m3(high)} << 8;
}

// ---- Launches of one stream begin one after the other.
UCCLEP_FN void wait_for_stream() {}
UCCLEP_FN void let_next_begin() {}

}  // namespace UCCLEP_SIMT_NAMESPACE
