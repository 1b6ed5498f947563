// SPDX-License-Identifier: Apache-2.0
// What arch/cuda.hpp takes from CUDA's headers, for clang without them (-x cuda -nocudainc): it needs no CUDA toolkit,
// and no header that is too new for it. Included by qualifiers.hpp.
#pragma once
#include <__clang_cuda_builtin_vars.h>  // threadIdx and its like

#include <cstddef>
#include <cstdint>

// Where clang has no builtin of the name.
inline __device__ void __syncwarp(unsigned mask) {
  __nvvm_bar_warp_sync(mask);
}
inline __device__ int __syncthreads_or(int predicate) {
  return __nvvm_bar0_or(predicate);
}
inline __device__ void __nanosleep(unsigned ns) {
  asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory");
}
inline __device__ int __ffsll(long long value) {
  return __builtin_ffsll(value);
}
inline __device__ int __popcll(long long value) {
  return __builtin_popcountll(static_cast<unsigned long long>(value));
}
inline __device__ unsigned __float_as_uint(float value) {
  return __builtin_bit_cast(unsigned, value);
}
inline __device__ unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  return static_cast<unsigned>(__nvvm_prmt(static_cast<int>(low), static_cast<int>(high), static_cast<int>(selector)));
}
inline __device__ unsigned atomicOr(unsigned* word, unsigned bits) {
  return __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}
inline __device__ size_t __cvta_generic_to_global(const void* address) {
  return reinterpret_cast<size_t>((__attribute__((address_space(1))) const void*)address);
}
inline __device__ size_t __cvta_generic_to_shared(const void* address) {
  return reinterpret_cast<size_t>((__attribute__((address_space(3))) const void*)address);
}

// Values across a warp: words of 32 bits, and of 64 as two of them.
namespace ucclep::clang_cuda {

template <class T, class Exchange>
__device__ inline T exchanged(T value, Exchange exchange) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, exchange(__builtin_bit_cast(int, value)));
  } else {
    const auto bits = __builtin_bit_cast(uint64_t, value);
    const auto low = static_cast<uint32_t>(exchange(static_cast<int>(bits)));
    const auto high = static_cast<uint32_t>(exchange(static_cast<int>(bits >> 32)));
    return __builtin_bit_cast(T, low | uint64_t{high} << 32);
  }
}

}  // namespace ucclep::clang_cuda

template <class T>
__device__ inline T __shfl_sync(unsigned mask, T value, int lane) {
  return ucclep::clang_cuda::exchanged(value,
                                       [=](int word) { return __nvvm_shfl_sync_idx_i32(mask, word, lane, 0x1f); });
}
template <class T>
__device__ inline T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return ucclep::clang_cuda::exchanged(value,
                                       [=](int word) { return __nvvm_shfl_sync_bfly_i32(mask, word, lanes, 0x1f); });
}
template <class T>
__device__ inline T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
  return ucclep::clang_cuda::exchanged(
      value, [=](int word) { return __nvvm_shfl_sync_up_i32(mask, word, static_cast<int>(delta), 0); });
}
inline __device__ unsigned __ballot_sync(unsigned mask, int predicate) {
  return __nvvm_vote_ballot_sync(mask, predicate != 0);
}
inline __device__ unsigned __match_any_sync(unsigned mask, unsigned value) {
  return __nvvm_match_any_sync_i32(mask, value);
}

template <class T>
__device__ inline T __reduce_add_sync(unsigned mask, T value) {
  return static_cast<T>(__nvvm_redux_sync_add(static_cast<int>(value), static_cast<int>(mask)));
}
inline __device__ unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return __nvvm_redux_sync_umax(value, static_cast<int>(mask));
}
inline __device__ int __reduce_max_sync(unsigned mask, int value) {
  return __nvvm_redux_sync_max(value, static_cast<int>(mask));
}
inline __device__ unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return __nvvm_redux_sync_umin(value, static_cast<int>(mask));
}
inline __device__ int __reduce_min_sync(unsigned mask, int value) {
  return __nvvm_redux_sync_min(value, static_cast<int>(mask));
}
