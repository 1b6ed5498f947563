// SPDX-License-Identifier: Apache-2.0
// How a function is marked on each target, and the namespace that everything which depends on the wave size lives in.
#pragma once

#if defined(__CUDA__) && !defined(__CUDACC__) && !defined(__HIP__)  // clang -x cuda -nocudainc, see clang_cuda.hpp
#define UCCLEP_CLANG_CUDA
#define __CUDACC__
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#endif

#if defined(__HIP__)  // clang -x hip, with or without the HIP headers

#define UCCLEP_FN inline __attribute__((device, always_inline))
#define UCCLEP_LIBRARY_FN extern "C" __attribute__((device))
#define UCCLEP_COLD_FN UCCLEP_FN  // a call would need a stack
#define UCCLEP_HD inline __attribute__((host, device, always_inline))
#define UCCLEP_WAVE 64

#elif defined(__CUDACC__)

#define UCCLEP_FN __device__ __forceinline__
#define UCCLEP_LIBRARY_FN extern "C" __device__
#if defined(UCCLEP_CLANG_CUDA)
#define UCCLEP_COLD_FN UCCLEP_FN  // Triton's LLVM cannot compile functions that take structs by value
#else
#define UCCLEP_COLD_FN inline __device__ __noinline__
#endif
#define UCCLEP_HD __host__ __device__ __forceinline__
#define UCCLEP_WAVE 32

#else

#define UCCLEP_FN inline
#if defined(__cplusplus)
#define UCCLEP_LIBRARY_FN extern "C"
#else
#define UCCLEP_LIBRARY_FN extern
#endif
#define UCCLEP_COLD_FN inline
#define UCCLEP_HD inline
#if !defined(UCCLEP_WAVE)
#define UCCLEP_WAVE 32
#endif

#endif

// Before a loop over a small array that is to live in registers; before one whose copies would need too many. On the
// host device clang warns of a loop that it does not unroll, as of some under a sanitizer.
#if defined(__CUDACC__) || defined(__HIP__)
#define UCCLEP_UNROLL _Pragma("unroll")
#define UCCLEP_KEEP_LOOP _Pragma("unroll 1")
#elif defined(__clang__)
#define UCCLEP_UNROLL
#define UCCLEP_KEEP_LOOP _Pragma("unroll 1")
#else
#define UCCLEP_UNROLL _Pragma("GCC unroll 8")
#define UCCLEP_KEEP_LOOP _Pragma("GCC unroll 1")
#endif

// UCCLEP_FN marks what only a lane may call, UCCLEP_COLD_FN what it calls when all is lost and what need not lie
// between the instructions of a hot path, UCCLEP_HD plain arithmetic that the host uses too, and UCCLEP_LIBRARY_FN what
// libucclep_device has under a C name (ucclep/device_library.h). One library holds host kernels of both wave sizes: the
// inline namespace keeps their symbols apart.
#if UCCLEP_WAVE == 32
#define UCCLEP_SIMT_NAMESPACE ucclep::inline w32
#elif UCCLEP_WAVE == 64
#define UCCLEP_SIMT_NAMESPACE ucclep::inline w64
#else
#error "UCCLEP_WAVE is 32 or 64"
#endif
