// SPDX-License-Identifier: Apache-2.0
// AMD CDNA (gfx90a, gfx942), waves of 64 lanes. Compiled by clang without any HIP header: only compiler builtins here.
// Nothing of it has run on hardware yet. Included by arch.hpp; ../simt.hpp says what is ordered.
#pragma once
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__GFX9__)
#error "amdgcn.hpp is for AMD GPUs whose waves have 64 lanes (gfx9): another family needs a file of its own in arch/"
#endif

namespace UCCLEP_SIMT_NAMESPACE {

constexpr unsigned wave_size = 64;

// No promise is known about stores wider than 8 bytes (docs/protocol.md, P15), so groups use no lines of rows here.
constexpr unsigned line_lanes = 1;

// ---- Identity. Blocks and grids have one dimension.
UCCLEP_FN unsigned thread_id() {
  return __builtin_amdgcn_workitem_id_x();
}
UCCLEP_FN unsigned lane_id() {
  return thread_id() % wave_size;
}
// readfirstlane makes a value scalar, and so what follows from it: a loop over a wave's share of the work needs no mask
// of lanes.
UCCLEP_FN uint32_t uniform(uint32_t value) {
  return static_cast<uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(value)));
}
// A wave has more vector registers than a kernel needs, and too few scalar ones: what outer loops count is kept in the
// former, and read back with uniform() where it is used.
UCCLEP_FN uint32_t keep_in_vgpr(uint32_t value) {
  asm volatile("" : "+v"(value));
  return value;
}
UCCLEP_FN unsigned warp_id() {
  return uniform(thread_id() / wave_size);
}
UCCLEP_FN unsigned block_id() {
  return __builtin_amdgcn_workgroup_id_x();
}
UCCLEP_FN unsigned block_size() {
  return __builtin_amdgcn_workgroup_size_x();
}
// The first hidden argument of code object version 5 is the number of blocks.
UCCLEP_FN unsigned grid_size() {
  return *(const __attribute__((address_space(4))) uint32_t*)__builtin_amdgcn_implicitarg_ptr();
}

// The block's dynamic shared memory (LDS), aligned to 128 bytes.
extern __attribute__((shared, aligned(128))) unsigned char ucclep_shared[];
UCCLEP_FN void* shared_memory() {
  return ucclep_shared;
}

// ---- Barriers.
UCCLEP_FN void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// Waits until the wave's stores have reached the L2. A workgroup-scope release leaves them in flight, and a later
// release by another wave of the block waits for its own stores only.
UCCLEP_FN void drain_stores() {
  constexpr int vmcnt_0 = 0x0f70;  // the other counters at their maximum: not waited for
  __builtin_amdgcn_s_waitcnt(vmcnt_0);
}

UCCLEP_FN void sync_block() {
  drain_stores();
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// ---- Values across the wave.
UCCLEP_FN uint32_t permute(uint32_t value, unsigned lane) {
  return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(static_cast<int>(lane * 4), static_cast<int>(value)));
}

UCCLEP_FN uint32_t read_lane(uint32_t value, unsigned lane) {
  return static_cast<uint32_t>(__builtin_amdgcn_readlane(static_cast<int>(value), static_cast<int>(lane)));
}

// A scalar.
template <class T>
UCCLEP_FN T broadcast(T value, unsigned lane) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, read_lane(__builtin_bit_cast(uint32_t, value), lane));
  } else {
    const uint64_t bits = __builtin_bit_cast(uint64_t, value);
    const uint64_t high = read_lane(static_cast<uint32_t>(bits >> 32), lane);
    return __builtin_bit_cast(T, high << 32 | read_lane(static_cast<uint32_t>(bits), lane));
  }
}
template <class T>
UCCLEP_FN T shfl(T value, unsigned lane) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, permute(__builtin_bit_cast(uint32_t, value), lane));
  } else {
    const uint64_t bits = __builtin_bit_cast(uint64_t, value);
    const uint64_t high = permute(static_cast<uint32_t>(bits >> 32), lane);
    return __builtin_bit_cast(T, high << 32 | permute(static_cast<uint32_t>(bits), lane));
  }
}
template <class T>
UCCLEP_FN T shfl_xor(T value, unsigned mask) {
  return shfl(value, lane_id() ^ mask);
}
// Lanes below delta keep their own value.
template <class T>
UCCLEP_FN T shfl_up(T value, unsigned delta) {
  return shfl(value, lane_id() >= delta ? lane_id() - delta : lane_id());
}
UCCLEP_FN uint64_t ballot(bool predicate) {
  return __builtin_amdgcn_ballot_w64(predicate);
}

// Masks of lanes: the lowest lane of one that is not empty, and how many lanes.
UCCLEP_FN unsigned first_lane(uint64_t mask) {
  return static_cast<unsigned>(__builtin_ctzll(mask));
}
UCCLEP_FN unsigned count_lanes(uint64_t mask) {
  return static_cast<unsigned>(__builtin_popcountll(mask));
}

// One turn for each different value.
UCCLEP_FN uint64_t match_any(uint32_t value) {
  uint64_t same = 0;
  for (uint64_t left = ballot(true); left != 0;) {
    const uint32_t leader = broadcast(value, first_lane(left));
    const uint64_t members = ballot(value == leader);
    if (value == leader) same = members;
    left &= ~members;
  }
  return same;
}

UCCLEP_FN bool sync_block_or(bool predicate) {
  static __attribute__((shared)) uint32_t any;
  if (thread_id() == 0) any = 0;
  sync_block();
  if (ballot(predicate) != 0 && lane_id() == 0) {
    __hip_atomic_store(&any, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  }
  sync_block();
  const bool result = any != 0;
  sync_block();
  return result;
}
UCCLEP_FN uint32_t broadcast_block(uint32_t value) {
  static __attribute__((shared)) uint32_t first;
  if (thread_id() == 0) first = value;
  sync_block();
  value = first;
  sync_block();  // all have read it
  return value;
}

}  // namespace UCCLEP_SIMT_NAMESPACE

#include "ucclep/device/arch/butterfly.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

template <class T>
UCCLEP_FN T reduce_add(T value) {
  return butterfly(value, [](T a, T b) { return a + b; });
}
template <class T>
UCCLEP_FN T reduce_max(T value) {
  return butterfly(value, [](T a, T b) { return a > b ? a : b; });
}
template <class T>
UCCLEP_FN T reduce_min(T value) {
  return butterfly(value, [](T a, T b) { return a < b ? a : b; });
}

// ---- Scoped loads, stores and read-modify-writes of one word of 4 or 8 bytes.
template <Scope scope>
constexpr int memory_scope = scope == Scope::gpu ? __HIP_MEMORY_SCOPE_AGENT : __HIP_MEMORY_SCOPE_SYSTEM;

template <Scope scope, class T>
UCCLEP_FN T load_relaxed(const T* word) {
  return __hip_atomic_load(word, __ATOMIC_RELAXED, memory_scope<scope>);
}
template <Scope scope, class T>
UCCLEP_FN T load_acquire(const T* word) {
  return __hip_atomic_load(word, __ATOMIC_ACQUIRE, memory_scope<scope>);
}
template <Scope scope, class T>
UCCLEP_FN void store_relaxed(T* word, T value) {
  __hip_atomic_store(word, value, __ATOMIC_RELAXED, memory_scope<scope>);
}
template <Scope scope, class T>
UCCLEP_FN void store_release(T* word, T value) {
  __hip_atomic_store(word, value, __ATOMIC_RELEASE, memory_scope<scope>);
}
template <Scope scope, class T>
UCCLEP_FN T fetch_add_relaxed(T* word, T value) {
  return __hip_atomic_fetch_add(word, value, __ATOMIC_RELAXED, memory_scope<scope>);
}
UCCLEP_FN void set_bits(uint32_t* word, uint32_t bits) {
  __hip_atomic_fetch_or(word, bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <Scope scope, class T>
UCCLEP_FN T fetch_add_acq_rel(T* word, T value) {
  return __hip_atomic_fetch_add(word, value, __ATOMIC_ACQ_REL, memory_scope<scope>);
}
// True when *word was expected and is now desired; otherwise expected becomes what it was.
template <Scope scope, class T>
UCCLEP_FN bool compare_exchange(T* word, T& expected, T desired) {
  return __hip_atomic_compare_exchange_strong(word, &expected, desired, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE,
                                              memory_scope<scope>);
}

template <Scope scope>
UCCLEP_FN void fence_acq_rel() {
  if constexpr (scope == Scope::gpu) {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "");
  }
}

UCCLEP_FN void fence_seq_cst() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}

// On gfx942: buffer_wbl2 sc0 sc1, s_waitcnt vmcnt(0), the store with sc0 sc1. The wait covers all lanes of the wave.
UCCLEP_FN void publish(uint64_t* word, uint64_t value) {
  store_release<Scope::system>(word, value);
}

// ---- 16 bytes.
typedef uint32_t native16 __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(1))) native16 global16;
typedef __attribute__((address_space(3))) native16 shared16;

// Before the first fence or barrier of a kernel a uniform load may become a scalar one, whose cache no acquire
// invalidates; after one it is a vector load. So what a peer writes while the kernel runs is right to read after an
// acquire, as it must be.
UCCLEP_FN vec16 load16(const void* data) {
  return *static_cast<const vec16*>(data);
}
UCCLEP_FN void store16(void* data, vec16 value) {
  *static_cast<vec16*>(data) = value;
}
UCCLEP_FN vec16 load16_stream(const void* data) {
  return __builtin_bit_cast(vec16, __builtin_nontemporal_load(static_cast<const native16*>(data)));
}
UCCLEP_FN void store16_stream(void* data, vec16 value) {
  __builtin_nontemporal_store(__builtin_bit_cast(native16, value), static_cast<native16*>(data));
}

// The memory model knows atomic accesses of up to 8 bytes, and no order between the halves of a wider one. So the epoch
// is released after the value, and acquired before it: once for all lanes of a wave that store together.
UCCLEP_FN void store_packet(Packet* packet, uint64_t value, uint64_t epoch) {
  store_relaxed<Scope::system>(&packet->value, value);
  store_release<Scope::system>(&packet->epoch, epoch);
}
UCCLEP_FN Packet load_packet(const Packet* packet) {
  const uint64_t epoch = load_acquire<Scope::system>(&packet->epoch);
  return {load_relaxed<Scope::system>(&packet->value), epoch};
}
UCCLEP_FN void store_line_part(Packet* to, uint64_t first, uint64_t second) {
  store_packet(to, first, second);
}

// ---- Bulk copies: addresses and sizes are multiples of 16 bytes. The wave copies, 16 bytes a lane.
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

// Four accesses of the wave are in flight before the first one is stored. Loops count in scalars, for the whole wave:
// a lane's own count would cost a mask of lanes for each step of an unrolled loop.
template <class To, class From>
UCCLEP_FN void copy_by_wave(To* to, const From* from, uint32_t bytes) {
  constexpr uint32_t batch = 4;
  const uint32_t lane = lane_id();
  const uint32_t count = bytes / 16;
  uint32_t done = 0;
#pragma unroll 1
  for (; done + batch * wave_size <= count; done += batch * wave_size) {
    native16 values[batch];
#pragma unroll
    for (uint32_t i = 0; i < batch; ++i) values[i] = __builtin_nontemporal_load(from + done + i * wave_size + lane);
#pragma unroll
    for (uint32_t i = 0; i < batch; ++i) __builtin_nontemporal_store(values[i], to + done + i * wave_size + lane);
  }
#pragma unroll 1
  for (; done < count; done += wave_size) {
    if (done + lane < count)
      __builtin_nontemporal_store(__builtin_nontemporal_load(from + done + lane), to + done + lane);
  }
}

UCCLEP_FN void bulk_load(void* shared, const void* global, uint32_t bytes, BulkBarrier*) {
  sync_warp();
  copy_by_wave((shared16*)shared, (const global16*)global, bytes);
}

UCCLEP_FN void bulk_wait_loaded(BulkBarrier*, uint32_t) {
  sync_warp();
}

// Every active lane has a destination of its own; all copy the same source.
UCCLEP_FN void bulk_store(bool active, void* global, const void* shared, uint32_t bytes) {
#pragma unroll 1
  for (uint64_t left = ballot(active); left != 0; left &= left - 1) {
    const uint64_t address = broadcast(reinterpret_cast<uint64_t>(global), first_lane(left));
    copy_by_wave((global16*)address, (const shared16*)shared, bytes);
  }
}

UCCLEP_FN void bulk_wait_read() {
  sync_warp();
}

UCCLEP_FN void bulk_wait_written() {
  drain_stores();
  sync_warp();
}

// ---- Kernel arguments.

// The same arguments, or a part of them, at an address that the compiler knows nothing of: it reads their fields again
// where they are needed from here on. Known to be constant, a hundred fields would be loaded at entry, or before a
// loop, and kept in scalar registers, of which there are not that many. In a large kernel of a user the address itself
// may lie in vector registers; all lanes have the same.
template <class T>
UCCLEP_FN const T& reload(const T& arguments) {
  const auto bits = (uint64_t)&arguments;
  const uint64_t low = uniform(static_cast<uint32_t>(bits)), high = uniform(static_cast<uint32_t>(bits >> 32));
  const auto* address = (const __attribute__((address_space(4))) T*)(low | high << 32);
  asm volatile("" : "+s"(address));
  return *(const T*)address;
}

// ---- Time. The constant clock of CDNA counts at 100 MHz.
UCCLEP_FN uint64_t clock_ns() {
  return __builtin_amdgcn_s_memrealtime() * 10;
}
UCCLEP_FN void pause() {
  __builtin_amdgcn_s_sleep(1);
}

// ---- fp32: each result is rounded, and no product becomes part of a sum. Clang's default for HIP obeys the pragma;
// -ffp-contract=fast does not.
UCCLEP_FN float add_rounded(float a, float b) {
#pragma clang fp contract(off)
  return a + b;
}
UCCLEP_FN float multiply_rounded(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}

// ---- fp16, as in arch/numeric.hpp: kernels begin with rounding to nearest even, and with subnormal numbers of fp16.
UCCLEP_FN uint32_t to_fp16_pair(float low, float high) {
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(low)) |
         uint32_t{__builtin_bit_cast(uint16_t, static_cast<_Float16>(high))} << 16;
}
UCCLEP_FN float widen_fp16(uint16_t value) {
  return static_cast<float>(__builtin_bit_cast(_Float16, value));
}

// ---- Launches of one stream begin one after the other.
UCCLEP_FN void let_next_begin() {}

}  // namespace UCCLEP_SIMT_NAMESPACE

#include "ucclep/device/arch/numeric.hpp"

// One block of 512 threads per CU, so two waves on each SIMD: at most 256 vector registers a lane, accumulation
// registers included.
#define UCCLEP_KERNEL(name, ArgsType)                                                                                  \
  UCCLEP_FN void name##_body(const ArgsType& args);                                                                    \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 512), amdgpu_waves_per_eu(2))) void ucclep_##name( \
      const ArgsType) {                                                                                                \
    name##_body(::ucclep::reload(*(const ArgsType*)__builtin_amdgcn_kernarg_segment_ptr()));                           \
  }                                                                                                                    \
  UCCLEP_FN void name##_body([[maybe_unused]] const ArgsType& args)
