// SPDX-License-Identifier: Apache-2.0
// The verbs on a CPU. A lane is a fibre of the executor; scopes do not matter, since every std::atomic operation has
// the scope of the whole machine. Loads and stores are real atomic operations in the kernel's own, instrumented code,
// so that ThreadSanitizer judges a kernel by the C++ memory model: fences are expressed as operations that it
// understands.
#pragma once
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ucclep/device/arch/host_executor.hpp"
#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/arch/qualifiers.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

constexpr unsigned wave_size = UCCLEP_WAVE;
constexpr unsigned line_lanes = 1;

// --- identity ---
UCCLEP_FN unsigned thread_id() {
  return executor::current->thread;
}
UCCLEP_FN unsigned lane_id() {
  return executor::current->lane;
}
UCCLEP_FN unsigned warp_id() {
  return executor::current->warp;
}
UCCLEP_FN unsigned block_id() {
  return executor::current->block;
}
UCCLEP_FN unsigned block_size() {
  return executor::current->block_size;
}
UCCLEP_FN unsigned grid_size() {
  return executor::current->grid_size;
}
UCCLEP_FN void* shared_memory() {
  return executor::current->shared;
}

// --- warp and block ---
UCCLEP_FN void sync_warp() {
  executor::runtime->order_warp(executor::Verb::sync_warp);
}
UCCLEP_FN void sync_block() {
  executor::runtime->sync_block(false);
}
UCCLEP_FN bool sync_block_or(bool value) {
  return executor::runtime->sync_block(value);
}
// Bit by bit, since votes are all that the threads of a block exchange.
UCCLEP_FN uint32_t broadcast_block(uint32_t value) {
  uint32_t first = 0;
  for (unsigned bit = 0; bit < 32; ++bit) {
    if (sync_block_or(thread_id() == 0 && (value >> bit & 1) != 0)) first |= 1u << bit;
  }
  return first;
}

namespace host_detail {

#if defined(__SANITIZE_THREAD__)
constexpr bool under_tsan = true;
#elif defined(__has_feature)
constexpr bool under_tsan = __has_feature(thread_sanitizer);
#else
constexpr bool under_tsan = false;
#endif

template <class T>
UCCLEP_FN T exchange_bits(executor::Verb verb, T value, unsigned argument) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(executor::runtime->exchange(verb, std::bit_cast<Bits>(value), argument)));
}

// The executor adds and compares 64-bit unsigned values. Sums of sign-extended values are right modulo 2^64; for order,
// signed values are moved so that the smallest becomes 0.
template <class T>
UCCLEP_FN T exchange_integer(executor::Verb verb, T value, bool ordered) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  const uint64_t offset = ordered && std::is_signed_v<T> ? uint64_t{1} << 63 : 0;
  return static_cast<T>(executor::runtime->exchange(verb, static_cast<uint64_t>(value) ^ offset, 0) ^ offset);
}

// What is released is visible: lines of the block, too.
UCCLEP_FN void before_release() {
  if (executor::current->torn != 0) [[unlikely]]
    executor::runtime->flush_torn();
}

}  // namespace host_detail

template <class T>
UCCLEP_FN T shfl(T value, unsigned lane) {
  return host_detail::exchange_bits(executor::Verb::shfl, value, lane);
}
template <class T>
UCCLEP_FN T shfl_xor(T value, unsigned mask) {
  return host_detail::exchange_bits(executor::Verb::shfl_xor, value, mask);
}
// Lanes below delta keep their own value.
template <class T>
UCCLEP_FN T shfl_up(T value, unsigned delta) {
  return host_detail::exchange_bits(executor::Verb::shfl_up, value, delta);
}
UCCLEP_FN uint64_t ballot(bool value) {
  return executor::runtime->exchange(executor::Verb::ballot, value, 0);
}
UCCLEP_FN uint64_t match_any(uint32_t value) {
  return executor::runtime->exchange(executor::Verb::match_any, value, 0);
}
// Masks of lanes: the lowest lane of one that is not empty, and how many lanes.
UCCLEP_FN unsigned first_lane(uint64_t mask) {
  return static_cast<unsigned>(std::countr_zero(mask));
}
UCCLEP_FN unsigned count_lanes(uint64_t mask) {
  return static_cast<unsigned>(std::popcount(mask));
}
template <class T>
UCCLEP_FN T reduce_add(T value) {
  return host_detail::exchange_integer(executor::Verb::reduce_add, value, false);
}
template <class T>
UCCLEP_FN T reduce_max(T value) {
  return host_detail::exchange_integer(executor::Verb::reduce_max, value, true);
}
template <class T>
UCCLEP_FN T reduce_min(T value) {
  return host_detail::exchange_integer(executor::Verb::reduce_min, value, true);
}
template <class T>
UCCLEP_FN T scan_add(T value) {
  return host_detail::exchange_integer(executor::Verb::scan_add, value, false);
}

// --- scoped words ---
template <Scope, class T>
UCCLEP_FN T load_relaxed(const T* word) {
  executor::runtime->poll(word);
  return std::atomic_ref<T>(*const_cast<T*>(word)).load(std::memory_order_relaxed);
}
template <Scope, class T>
UCCLEP_FN T load_acquire(const T* word) {
  executor::runtime->poll(word);
  return std::atomic_ref<T>(*const_cast<T*>(word)).load(std::memory_order_acquire);
}
template <Scope, class T>
UCCLEP_FN void store_relaxed(T* word, T value) {
  std::atomic_ref<T>(*word).store(value, std::memory_order_relaxed);
  executor::note_store();
}
template <Scope, class T>
UCCLEP_FN void store_release(T* word, T value) {
  host_detail::before_release();
  std::atomic_ref<T>(*word).store(value, std::memory_order_release);
  executor::note_store();
}
template <Scope, class T>
UCCLEP_FN T fetch_add_relaxed(T* word, T value) {
  const T before = std::atomic_ref<T>(*word).fetch_add(value, std::memory_order_relaxed);
  executor::note_store();
  return before;
}
UCCLEP_FN void set_bits(uint32_t* word, uint32_t bits) {
  std::atomic_ref<uint32_t>(*word).fetch_or(bits, std::memory_order_relaxed);
  executor::note_store();
}
template <Scope, class T>
UCCLEP_FN T fetch_add_acq_rel(T* word, T value) {
  host_detail::before_release();
  const T before = std::atomic_ref<T>(*word).fetch_add(value, std::memory_order_acq_rel);
  executor::note_store();
  return before;
}
template <Scope, class T>
UCCLEP_FN bool compare_exchange(T* word, T& expected, T desired) {
  host_detail::before_release();
  executor::runtime->poll(word);  // a loop around it is a spin
  const bool done = std::atomic_ref<T>(*word).compare_exchange_strong(expected, desired, std::memory_order_acq_rel,
                                                                      std::memory_order_acquire);
  executor::note_store();
  return done;
}

namespace host_detail {
inline void fence(Scope scope, std::memory_order order) {
  before_release();
  if constexpr (under_tsan) {
    // ThreadSanitizer does not know fences; it does know that read-modify-writes of one word are ordered.
    executor::runtime->fences[static_cast<unsigned>(scope)].fetch_add(1, order);
  } else {
    std::atomic_thread_fence(order);
  }
}
}  // namespace host_detail

template <Scope scope>
UCCLEP_FN void fence_acq_rel() {
  host_detail::fence(scope, std::memory_order_acq_rel);
}
UCCLEP_FN void fence_seq_cst() {
  host_detail::fence(Scope::system, std::memory_order_seq_cst);
}

UCCLEP_FN void publish(uint64_t* word, uint64_t value) {
  store_release<Scope::system>(word, value);
}

// --- 16 bytes ---
namespace host_detail {
typedef uint32_t Bytes16 __attribute__((vector_size(16), may_alias));
}

UCCLEP_FN vec16 load16(const void* from) {
  return std::bit_cast<vec16>(*static_cast<const host_detail::Bytes16*>(from));
}
UCCLEP_FN void store16(void* to, vec16 value) {
  *static_cast<host_detail::Bytes16*>(to) = std::bit_cast<host_detail::Bytes16>(value);
}
UCCLEP_FN vec16 load16_stream(const void* from) {
  return load16(from);
}
// An ordinary store: a non-temporal one would not be ordered by the release that follows.
UCCLEP_FN void store16_stream(void* to, vec16 value) {
  store16(to, value);
}

// Sound where 8 bytes arrive whole: the epoch is released after the value, and acquired before it.
UCCLEP_FN void store_packet(Packet* to, uint64_t value, uint64_t epoch) {
  std::atomic_ref<uint64_t>(to->value).store(value, std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(to->epoch).store(epoch, std::memory_order_release);
  executor::note_store();
}
UCCLEP_FN Packet load_packet(const Packet* from) {
  auto* packet = const_cast<Packet*>(from);
  executor::runtime->poll(&packet->epoch);
  const uint64_t epoch = std::atomic_ref<uint64_t>(packet->epoch).load(std::memory_order_acquire);
  return {std::atomic_ref<uint64_t>(packet->value).load(std::memory_order_relaxed), epoch};
}

// Whole, unless torn mode is on: then each part that is has its own moment, and no order but that of a later release.
UCCLEP_FN void store_line_part(Packet* to, uint64_t first, uint64_t second) {
  if (executor::current->torn != 0) [[unlikely]]
    return executor::runtime->store_torn(&to->value, first, second);
  store_packet(to, first, second);
}

// --- bulk copies ---
struct BulkBarrier {
  uint64_t state;
};

UCCLEP_FN void bulk_barrier_init(BulkBarrier* barrier) {
  barrier->state = 0;
}
UCCLEP_FN void bulk_barrier_end(BulkBarrier*) {}
UCCLEP_FN void bulk_load(void* shared, const void* global, uint32_t bytes, BulkBarrier* barrier) {
  executor::runtime->bulk_load(shared, global, bytes, &barrier->state);
}
UCCLEP_FN void bulk_wait_loaded(BulkBarrier* barrier, uint32_t phase) {
  executor::runtime->bulk_wait_loaded(&barrier->state, phase);
}
UCCLEP_FN void bulk_store(bool active, void* global, const void* shared, uint32_t bytes) {
  executor::runtime->bulk_store(active, global, shared, bytes);
}
UCCLEP_FN void bulk_wait_read() {
  executor::runtime->bulk_wait_read();
}
UCCLEP_FN void bulk_wait_written() {
  executor::runtime->bulk_wait_written();
}
UCCLEP_FN void smem_to_bulk() {
  executor::runtime->order_warp(executor::Verb::smem_to_bulk);
}
UCCLEP_FN void acquire_then_bulk() {
  executor::runtime->order_warp(executor::Verb::acquire_then_bulk);
}

// --- kernel arguments ---
template <class T>
UCCLEP_FN const T& reload(const T& arguments) {
  return arguments;
}

// --- time ---
UCCLEP_FN uint64_t clock_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}
UCCLEP_FN void pause() {
  executor::runtime->pause();
}

// --- fp16 ---
UCCLEP_FN uint32_t to_fp16_pair(float low, float high) {
  return to_fp16(low) | uint32_t{to_fp16(high)} << 16;
}
UCCLEP_FN float widen_fp16(uint16_t value) {
  return from_fp16(value);
}

// ---- Launches of one stream begin one after the other.
UCCLEP_FN void let_next_begin() {}

// ---- fp32: each result is rounded, and no product becomes part of a sum, whatever the compiler is allowed.
UCCLEP_FN float rounded(float value) {
#if !defined(__clang__)
  return __builtin_assoc_barrier(value);
#elif defined(__x86_64__)
  asm("" : "+x"(value));  // clang's pragma yields to -ffp-contract=fast
  return value;
#else
  asm("" : "+w"(value));
  return value;
#endif
}
UCCLEP_FN float add_rounded(float a, float b) {
  return rounded(a + b);
}
UCCLEP_FN float multiply_rounded(float a, float b) {
  return rounded(a * b);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

// Kernels are compiled for the CPU: ucclep/host_launch.hpp launches them.
#define UCCLEP_ON_CPU 1

namespace UCCLEP_SIMT_NAMESPACE {

// What UCCLEP_KERNEL(name, Args) defines as ucclep_name.
template <class Args>
struct HostKernelOf : executor::KernelRegistration {
  HostKernelOf(const char* its_name, void (*body)(const void* args))
      : executor::KernelRegistration(executor::HostKernel{UCCLEP_WAVE, its_name, sizeof(Args), body,
                                                          &executor::current_slot, host_detail::under_tsan}) {}
};

}  // namespace UCCLEP_SIMT_NAMESPACE

// Defines a kernel: UCCLEP_KERNEL(name, ArgsType) { body that uses `args` }. Debuggers know it as ucclep_w32_name or
// ucclep_w64_name.
#define UCCLEP_HOST_JOIN_(wave, name) ucclep_w##wave##_##name
#define UCCLEP_HOST_JOIN(wave, name) UCCLEP_HOST_JOIN_(wave, name)
#define UCCLEP_HOST_KERNEL(name) UCCLEP_HOST_JOIN(UCCLEP_WAVE, name)

#define UCCLEP_KERNEL(name, ArgsType)                                                                  \
  static void UCCLEP_HOST_KERNEL(name)(const ArgsType& args);                                          \
  [[maybe_unused]] static const ::ucclep::HostKernelOf<ArgsType> ucclep_##name(                        \
      #name, [](const void* args) { UCCLEP_HOST_KERNEL(name)(*static_cast<const ArgsType*>(args)); }); \
  static void UCCLEP_HOST_KERNEL(name)([[maybe_unused]] const ArgsType& args)
