// SPDX-License-Identifier: Apache-2.0
// What kernels compiled for the CPU ask of the executor (src/device/host) that runs them: a lane is a fibre, and these
// functions are where one lane gives way to another. host.hpp builds the verbs from them; kernels use only the verbs.
// The executor is compiled without sanitizer instrumentation, the kernels with it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ucclep/ucclep.h"

// The table of functions that kernels call, an executor::UserRuntime. NULL, and a last error of this thread: the
// library has another version of it than the program that asks was compiled with (executor::runtime_abi).
extern "C" const void* ucclEpHostRuntime(unsigned abi);

namespace ucclep::executor {

struct LaneView {
  uint32_t thread, lane, warp, block, block_size, grid_size;
  uint32_t torn;  // torn mode: bytes of a store that arrive whole; else 0
  void* shared;
};

// The lane that runs on this thread. The executor sets it in each program or library that has kernels, by current_slot
// of the kernel that it runs. A fibre stays on its thread all its life, so the compiler may keep the address.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local const LaneView* current = nullptr;
inline const LaneView** current_slot() {
  return &current;
}

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

// What lanes call. One table for all: kernels in libucclep.so and in the programs of its users have nothing else of the
// executor, so its layout is the interface, and so is all else in this file. runtime_abi numbers it.
struct Runtime {
  // shfl*: the value of a lane, which `argument` names. reduce_*, scan_add: of 64-bit unsigned values. Orders no
  // memory.
  uint64_t (*exchange)(Verb verb, uint64_t value, uint32_t argument);
  // verb: sync_warp, smem_to_bulk, acquire_then_bulk. Orders the memory accesses of the lanes.
  void (*order_warp)(Verb verb);
  // Orders the memory accesses of the block's threads; true when any of them voted true.
  bool (*sync_block)(bool vote);

  // The lane lets all others run before it goes on.
  void (*pause)();
  // The lane is about to read a word that others write. Reading the same one again is a spin, and pauses.
  void (*poll)(const void* address);

  void (*bulk_load)(void* shared, const void* global, uint32_t bytes, uint64_t* barrier);
  void (*bulk_wait_loaded)(uint64_t* barrier, uint32_t phase);
  void (*bulk_store)(bool active, void* global, const void* shared, uint32_t bytes);
  void (*bulk_wait_read)();
  void (*bulk_wait_written)();

  // Torn mode. Part of a line, which becomes visible later, in parts of its own; and the end of that: all that lanes of
  // the block have stored so is visible.
  void (*store_torn)(uint64_t* to, uint64_t first, uint64_t second);
  void (*flush_torn)();

  // Workers whose lanes all spin sleep for a moment; a store that others may wait for ends that early. A sleeper that
  // is missed here wakes by itself after a fraction of a millisecond.
  std::atomic<uint32_t>* sleepers;
  void (*wake_sleepers)();

  // A word for each Scope, by which ThreadSanitizer understands fences: all kernels of the process share them.
  std::atomic<uint32_t>* fences;
};
constexpr unsigned runtime_abi = 1;

// A kernel for the CPU.
struct HostKernel {
  unsigned wave;  // for which it was compiled
  const char* name;
  size_t arg_bytes;
  void (*function)(const void* args);
  const LaneView** (*current_slot)();
  bool under_tsan;  // compiled with -fsanitize=thread
};

// What ucclEpHostRuntime returns: the table, and how a user's kernel is launched (ucclep/host_launch.hpp).
struct UserRuntime : Runtime {
  ucclEpResult_t (*launch)(ucclEpComm_t comm, const HostKernel& kernel, unsigned grid, unsigned block,
                           size_t shared_bytes, const void* args, size_t bytes, ucclEpStream_t stream);
};

#if defined(UCCLEP_HOST_EXECUTOR)  // what is linked with the executor itself: the library, its tools and tests
[[gnu::visibility("hidden")]] extern const Runtime own_runtime;
inline constexpr const Runtime* runtime = &own_runtime;

// A kernel that the library launches by name. It makes itself known when its object file is loaded.
struct KernelRegistration : HostKernel {
  explicit KernelRegistration(const HostKernel& kernel);
  const KernelRegistration* const next;
};
#else
inline const Runtime* const runtime =
    static_cast<const UserRuntime*>(ucclEpHostRuntime(runtime_abi));  // NULL: no kernel is launched
using KernelRegistration = HostKernel;
#endif

inline void note_store() {
  if (runtime->sleepers->load(std::memory_order_relaxed) != 0) [[unlikely]]
    runtime->wake_sleepers();
}

}  // namespace ucclep::executor
