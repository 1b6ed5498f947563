// SPDX-License-Identifier: Apache-2.0
// What kernels compiled for the CPU ask of the executor (src/device/host) that runs them: a lane is a fibre, and these
// functions are where one lane gives way to another. host.hpp builds the verbs from them; kernels use only the verbs.
// The executor is compiled without sanitizer instrumentation, the kernels with it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ucclep::executor {

struct LaneView {
  uint32_t thread, lane, warp, block, block_size, grid_size;
  uint32_t torn;  // torn mode: bytes of a store that arrive whole; else 0
  void* shared;
};

// The lane that runs on this thread. A fibre stays on its thread all its life, so the compiler may keep the address.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local const LaneView* current;

// What the lanes of a warp do together. Each is one rendezvous, and a diagnosis names it.
enum class Verb : uint8_t {
  none,
  sync_warp,
  shfl,
  shfl_xor,
  shfl_up,
  ballot,
  match_any,
  reduce_add,
  reduce_max,
  reduce_min,
  scan_add,
  bulk_load,
  bulk_store,
  bulk_wait_loaded,
  bulk_wait_read,
  bulk_wait_written,
  smem_to_bulk,
  acquire_then_bulk,
};

// shfl*: the value of a lane, which `argument` names. reduce_*, scan_add: of 64-bit unsigned values. Orders no memory.
uint64_t exchange(Verb verb, uint64_t value, uint32_t argument);
// verb: sync_warp, smem_to_bulk, acquire_then_bulk. Orders the memory accesses of the lanes.
void order_warp(Verb verb);
// Orders the memory accesses of the block's threads; true when any of them voted true.
bool sync_block(bool vote);

// The lane lets all others run before it goes on.
void pause();
// The lane is about to read a word that others write. Reading the same one again is a spin, and pauses.
void poll(const void* address);

void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier);
void bulk_wait_loaded(uint64_t* barrier, uint32_t phase);
void bulk_store(bool active, void* global, const void* shared, uint32_t bytes);
void bulk_wait_read();
void bulk_wait_written();

// Torn mode. Part of a line, which becomes visible later, in parts of its own; and the end of that: all that lanes of
// the block have stored so is visible.
void store_torn(uint64_t* to, uint64_t first, uint64_t second);
void flush_torn();

// Workers whose lanes all spin sleep for a moment; a store that others may wait for ends that early. A sleeper that is
// missed here wakes by itself after a fraction of a millisecond.
extern constinit std::atomic<uint32_t> sleepers;
void wake_sleepers();

inline void note_store() {
  if (sleepers.load(std::memory_order_relaxed) != 0) [[unlikely]]
    wake_sleepers();
}

// A kernel makes itself known when its object file is loaded.
struct KernelRegistration {
  KernelRegistration(unsigned wave, const char* name, size_t arg_bytes, void (*function)(const void* args));
  const unsigned wave;
  const char* const name;
  const size_t arg_bytes;
  void (*const function)(const void* args);
  const KernelRegistration* const next;
};

}  // namespace ucclep::executor
