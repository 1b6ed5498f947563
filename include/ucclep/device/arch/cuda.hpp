// SPDX-License-Identifier: Apache-2.0
// NVIDIA, sm_80 and later. PTX addresses are generic, so that the verbs serve global and shared memory, except where an
// instruction exists for one of them only. Included by arch.hpp; ../simt.hpp says what is ordered.
#pragma once

#if defined(UCCLEP_CLANG_CUDA)
#include "ucclep/device/arch/clang_cuda.hpp"
#endif

namespace UCCLEP_SIMT_NAMESPACE {

constexpr unsigned wave_size = 32;

// Lanes whose 16-byte stores to one 128-byte line, issued by one instruction, arrive at a peer together: by NVLink.
constexpr unsigned line_lanes = 8;

constexpr unsigned all_lanes = 0xffffffffu;

// ---- Identity. Blocks and grids have one dimension.
UCCLEP_FN unsigned thread_id() {
  return threadIdx.x;
}
UCCLEP_FN unsigned lane_id() {
  return threadIdx.x % wave_size;
}
UCCLEP_FN unsigned warp_id() {
  return threadIdx.x / wave_size;
}
UCCLEP_FN unsigned block_id() {
  return blockIdx.x;
}
UCCLEP_FN unsigned block_size() {
  return blockDim.x;
}
UCCLEP_FN unsigned grid_size() {
  return gridDim.x;
}

// The block's dynamic shared memory, aligned to 128 bytes.
UCCLEP_FN void* shared_memory() {
  extern __shared__ __align__(128) unsigned char ucclep_shared[];
  return ucclep_shared;
}

// ---- Barriers.
UCCLEP_FN void sync_warp() {
  __syncwarp(all_lanes);
}
UCCLEP_FN void sync_block() {
  __syncthreads();
}
UCCLEP_FN bool sync_block_or(bool predicate) {
  return __syncthreads_or(predicate) != 0;
}
UCCLEP_FN uint32_t broadcast_block(uint32_t value) {
  __shared__ uint32_t first;
  if (thread_id() == 0) first = value;
  sync_block();
  value = first;
  sync_block();  // all have read it
  return value;
}

// ---- Values across the warp.
template <class T>
UCCLEP_FN T shfl(T value, unsigned lane) {
  return __shfl_sync(all_lanes, value, static_cast<int>(lane));
}
template <class T>
UCCLEP_FN T shfl_xor(T value, unsigned mask) {
  return __shfl_xor_sync(all_lanes, value, static_cast<int>(mask));
}
// Lanes below delta keep their own value.
template <class T>
UCCLEP_FN T shfl_up(T value, unsigned delta) {
  return __shfl_up_sync(all_lanes, value, delta);
}
UCCLEP_FN uint64_t ballot(bool predicate) {
  return __ballot_sync(all_lanes, predicate);
}
UCCLEP_FN uint64_t match_any(uint32_t value) {
  return __match_any_sync(all_lanes, value);
}

// ---- Masks of lanes: the lowest lane of one that is not empty, and how many lanes.
UCCLEP_FN unsigned first_lane(uint64_t mask) {
  return static_cast<unsigned>(__ffsll(static_cast<long long>(mask))) - 1;
}
UCCLEP_FN unsigned count_lanes(uint64_t mask) {
  return static_cast<unsigned>(__popcll(mask));
}

}  // namespace UCCLEP_SIMT_NAMESPACE

#include "ucclep/device/arch/butterfly.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// redux.sync takes 32-bit integers.
template <class T>
UCCLEP_FN T reduce_add(T value) {
  if constexpr (sizeof(T) == 4) {
    return static_cast<T>(__reduce_add_sync(all_lanes, value));
  } else {
    return butterfly(value, [](T a, T b) { return a + b; });
  }
}
template <class T>
UCCLEP_FN T reduce_max(T value) {
  if constexpr (sizeof(T) == 4) {
    return __reduce_max_sync(all_lanes, value);
  } else {
    return butterfly(value, [](T a, T b) { return a > b ? a : b; });
  }
}
template <class T>
UCCLEP_FN T reduce_min(T value) {
  if constexpr (sizeof(T) == 4) {
    return __reduce_min_sync(all_lanes, value);
  } else {
    return butterfly(value, [](T a, T b) { return a < b ? a : b; });
  }
}

// ---- Scoped loads, stores and read-modify-writes of one word of 4 or 8 bytes. An instruction's name cannot be a
// template argument, hence the macros. 8-byte read-modify-writes are for global memory only: a generic one becomes a
// loop.
#define UCCLEP_PTX_LOAD(verb, order)                                                         \
  template <Scope scope, class T>                                                            \
  UCCLEP_FN T verb(const T* word) {                                                          \
    if constexpr (sizeof(T) == 4) {                                                          \
      uint32_t value;                                                                        \
      if constexpr (scope == Scope::gpu) {                                                   \
        asm volatile("ld." order ".gpu.b32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); \
      } else {                                                                               \
        asm volatile("ld." order ".sys.b32 %0, [%1];" : "=r"(value) : "l"(word) : "memory"); \
      }                                                                                      \
      return static_cast<T>(value);                                                          \
    } else {                                                                                 \
      uint64_t value;                                                                        \
      if constexpr (scope == Scope::gpu) {                                                   \
        asm volatile("ld." order ".gpu.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory"); \
      } else {                                                                               \
        asm volatile("ld." order ".sys.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory"); \
      }                                                                                      \
      return static_cast<T>(value);                                                          \
    }                                                                                        \
  }
UCCLEP_PTX_LOAD(load_relaxed, "relaxed")
UCCLEP_PTX_LOAD(load_acquire, "acquire")
#undef UCCLEP_PTX_LOAD

#define UCCLEP_PTX_STORE(verb, order)                                                      \
  template <Scope scope, class T>                                                          \
  UCCLEP_FN void verb(T* word, T value) {                                                  \
    if constexpr (sizeof(T) == 4) {                                                        \
      if constexpr (scope == Scope::gpu) {                                                 \
        asm volatile("st." order ".gpu.b32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); \
      } else {                                                                             \
        asm volatile("st." order ".sys.b32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); \
      }                                                                                    \
    } else {                                                                               \
      if constexpr (scope == Scope::gpu) {                                                 \
        asm volatile("st." order ".gpu.b64 [%0], %1;" ::"l"(word), "l"(value) : "memory"); \
      } else {                                                                             \
        asm volatile("st." order ".sys.b64 [%0], %1;" ::"l"(word), "l"(value) : "memory"); \
      }                                                                                    \
    }                                                                                      \
  }
UCCLEP_PTX_STORE(store_relaxed, "relaxed")
UCCLEP_PTX_STORE(store_release, "release")
#undef UCCLEP_PTX_STORE

#define UCCLEP_PTX_FETCH_ADD(verb, order)                                                                           \
  template <Scope scope, class T>                                                                                   \
  UCCLEP_FN T verb(T* word, T value) {                                                                              \
    if constexpr (sizeof(T) == 4) {                                                                                 \
      uint32_t before;                                                                                              \
      if constexpr (scope == Scope::gpu) {                                                                          \
        asm volatile("atom." order ".gpu.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory"); \
      } else {                                                                                                      \
        asm volatile("atom." order ".sys.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory"); \
      }                                                                                                             \
      return static_cast<T>(before);                                                                                \
    } else {                                                                                                        \
      uint64_t before;                                                                                              \
      const size_t address = __cvta_generic_to_global(word);                                                        \
      if constexpr (scope == Scope::gpu) {                                                                          \
        asm volatile("atom." order ".gpu.global.add.u64 %0, [%1], %2;"                                              \
                     : "=l"(before)                                                                                 \
                     : "l"(address), "l"(value)                                                                     \
                     : "memory");                                                                                   \
      } else {                                                                                                      \
        asm volatile("atom." order ".sys.global.add.u64 %0, [%1], %2;"                                              \
                     : "=l"(before)                                                                                 \
                     : "l"(address), "l"(value)                                                                     \
                     : "memory");                                                                                   \
      }                                                                                                             \
      return static_cast<T>(before);                                                                                \
    }                                                                                                               \
  }
UCCLEP_PTX_FETCH_ADD(fetch_add_relaxed, "relaxed")
UCCLEP_PTX_FETCH_ADD(fetch_add_acq_rel, "acq_rel")
#undef UCCLEP_PTX_FETCH_ADD

// Relaxed, gpu scope.
UCCLEP_FN void set_bits(uint32_t* word, uint32_t bits) {
  atomicOr(word, bits);
}

// True when *word was expected and is now desired; otherwise expected becomes what it was.
template <Scope scope, class T>
UCCLEP_FN bool compare_exchange(T* word, T& expected, T desired) {
  T before;
  if constexpr (sizeof(T) == 4) {
    if constexpr (scope == Scope::gpu) {
      asm volatile("atom.acq_rel.gpu.cas.b32 %0, [%1], %2, %3;"
                   : "=r"(before)
                   : "l"(word), "r"(expected), "r"(desired)
                   : "memory");
    } else {
      asm volatile("atom.acq_rel.sys.cas.b32 %0, [%1], %2, %3;"
                   : "=r"(before)
                   : "l"(word), "r"(expected), "r"(desired)
                   : "memory");
    }
  } else {
    const size_t address = __cvta_generic_to_global(word);
    if constexpr (scope == Scope::gpu) {
      asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                   : "=l"(before)
                   : "l"(address), "l"(expected), "l"(desired)
                   : "memory");
    } else {
      asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
                   : "=l"(before)
                   : "l"(address), "l"(expected), "l"(desired)
                   : "memory");
    }
  }
  const bool exchanged = before == expected;
  expected = before;
  return exchanged;
}

template <Scope scope>
UCCLEP_FN void fence_acq_rel() {
  if constexpr (scope == Scope::gpu) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  } else {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
  }
}

UCCLEP_FN void fence_seq_cst() {
  asm volatile("fence.sc.sys;" ::: "memory");
}

// Compiles to MEMBAR.ALL.SYS and the store. fence.acq_rel.sys before a relaxed store would also invalidate the L1
// (CCTL.IVALL), and before a release store it would fence twice.
UCCLEP_FN void publish(uint64_t* word, uint64_t value) {
  store_release<Scope::system>(word, value);
}

// ---- 16 bytes.
UCCLEP_FN vec16 load16(const void* data) {
  return *static_cast<const vec16*>(data);
}
UCCLEP_FN void store16(void* data, vec16 value) {
  *static_cast<vec16*>(data) = value;
}

// Global memory only. Never the non-coherent path (.nc): it may return what a line held before a peer wrote it.
UCCLEP_FN vec16 load16_stream(const void* data) {
  vec16 value;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(__cvta_generic_to_global(data))
               : "memory");
  return value;
}
UCCLEP_FN void store16_stream(void* data, vec16 value) {
  asm volatile("st.global.L1::no_allocate.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(data)),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

// .b128 accesses are single-copy atomic, .v2.b64 would be two accesses to the memory model.
UCCLEP_FN void store_packet(Packet* packet, uint64_t value, uint64_t epoch) {
  asm volatile("{ .reg .b128 both; mov.b128 both, {%1, %2}; st.relaxed.sys.b128 [%0], both; }" ::"l"(packet),
               "l"(value), "l"(epoch)
               : "memory");
}
UCCLEP_FN Packet load_packet(const Packet* packet) {
  Packet loaded;
  asm volatile("{ .reg .b128 both; ld.relaxed.sys.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
               : "=l"(loaded.value), "=l"(loaded.epoch)
               : "l"(packet)
               : "memory");
  return loaded;
}

// The lanes of a line store their parts by one instruction.
UCCLEP_FN void store_line_part(Packet* to, uint64_t first, uint64_t second) {
  store_packet(to, first, second);
}

// ---- Kernel arguments. They lie in a constant bank that instructions read directly: none is kept in a register.
template <class T>
UCCLEP_FN const T& reload(const T& arguments) {
  return arguments;
}

// ---- fp16 and bf16. As in arch/numeric.hpp, but of a NaN sign and payload are lost.
UCCLEP_FN uint32_t to_bf16_pair(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
UCCLEP_FN uint32_t to_fp16_pair(float low, float high) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
UCCLEP_FN float widen_fp16(uint16_t value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
  return wide;
}

// ---- fp32: each result is rounded, and no product becomes part of a sum, whatever the compiler is allowed.
UCCLEP_FN float add_rounded(float a, float b) {
  float sum;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
  return sum;
}
UCCLEP_FN float multiply_rounded(float a, float b) {
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}

// ---- Time.
UCCLEP_FN uint64_t clock_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}
UCCLEP_FN void pause() {
  __nanosleep(20);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#include "ucclep/device/arch/numeric.hpp"  // before the next, which uses it

#include "ucclep/device/arch/cuda_sm80.hpp"
#else
#include "ucclep/device/arch/cuda_sm90.hpp"
#endif

// One block of 512 threads per SM: at most 128 registers a thread.
#define UCCLEP_KERNEL(name, ArgsType)                                                                         \
  UCCLEP_FN void name##_body(const ArgsType& args);                                                           \
  extern "C" __global__ void __launch_bounds__(512, 1) ucclep_##name(const __grid_constant__ ArgsType args) { \
    ::ucclep::wait_for_stream();                                                                              \
    name##_body(args);                                                                                        \
  }                                                                                                           \
  UCCLEP_FN void name##_body([[maybe_unused]] const ArgsType& args)
