// SPDX-License-Identifier: Apache-2.0
// What NVIDIA GPUs have from sm_90 on: bulk copies, conversion to fp8, launches that begin early. Included by cuda.hpp.
#pragma once

namespace UCCLEP_SIMT_NAMESPACE {

// ---- Bulk copies: addresses and sizes are multiples of 16 bytes. They run in the async proxy; an mbarrier counts the
// bytes of a load, a bulk group of each issuing lane its stores.
struct BulkBarrier {
  uint64_t word;
};

UCCLEP_FN uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// One lane, then sync_block.
UCCLEP_FN void bulk_barrier_init(BulkBarrier* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Lane verb, after all waits for it: its memory may hold something else.
UCCLEP_FN void bulk_barrier_end(BulkBarrier* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

UCCLEP_FN void smem_to_bulk() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  sync_warp();
}

// Lane 0 issues. The completion of a bulk copy implies a proxy fence: waiting for it is enough to read the data.
UCCLEP_FN void bulk_load(void* shared, const void* global, uint32_t bytes, BulkBarrier* barrier) {
  smem_to_bulk();
  if (lane_id() == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
  }
}

// phase is 0, 1, 0, ... for the uses of this barrier. It ends: the copy engine always completes, or the launch fails.
UCCLEP_FN void bulk_wait_loaded(BulkBarrier* barrier, uint32_t phase) {
  uint32_t complete;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(complete)
                 : "r"(shared_address(barrier)), "r"(phase)
                 : "memory");
  } while (complete == 0);
  sync_warp();
}

// Every active lane has a destination of its own; all copy the same source.
UCCLEP_FN void bulk_store(bool active, void* global, const void* shared, uint32_t bytes) {
  if (active) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(global)),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
}

UCCLEP_FN void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  sync_warp();
}

// Each lane waits for its own stores; sync_warp passes that on, so a publish by any lane of the warp covers them.
UCCLEP_FN void bulk_wait_written() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  sync_warp();
}

// The lane that issues must itself stand behind the fence, so all lanes fence. Restricted to global memory it is one
// instruction (FENCE.VIEW.ASYNC.G); for all state spaces it would contain a MEMBAR.ALL.GPU.
UCCLEP_FN void acquire_then_bulk() {
  sync_warp();
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// ---- fp8. As to_e4m3 of arch/numeric.hpp, two at a time; the instruction alone would lose the sign of a NaN.
UCCLEP_FN uint32_t to_e4m3_pair(float low, float high) {
  uint16_t both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  const uint32_t high_bytes = __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x0073);
  return both | (high_bytes & 0x8080u);
}

// ---- Launches of one stream. A kernel may have been launched before the one ahead of it has ended: it waits here
// until that has, and sees all that it wrote.
UCCLEP_FN void wait_for_stream() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// Verb of a thread for its block: when all blocks have said so, or ended, blocks of the next launch may take the place
// of those that end. Where nothing is waited for any more: those blocks wait for this launch.
UCCLEP_FN void let_next_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace UCCLEP_SIMT_NAMESPACE
