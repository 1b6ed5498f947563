// SPDX-License-Identifier: Apache-2.0
// What a lane can do. Kernels are plain scalar code over these verbs: one text for NVIDIA, AMD and the CPU.
// arch/ provides the verbs below; this header adds scopes, bounded waits and block-level helpers on top of them.
//
// Rules for kernels
//   - A block has a multiple of wave_size threads, at most 512.
//   - "Warp" verbs are called by all lanes of a converged warp, "block" verbs by all threads of the block.
//   - Algorithms call verbs, never raw fences; all memory that a peer can write is read through a verb, and no pointer
//     to it is __restrict__ (a compiler may load through the non-coherent cache what it believes to be constant).
//   - No lane waits for another lane of its own warp except through a warp verb.
//
// Identity     wave_size, thread_id(), lane_id(), warp_id(), block_id(), block_size(), grid_size(), shared_memory()
// Block values broadcast_block(value): thread 0's, for all
// Warp values  shfl, shfl_xor, shfl_up, broadcast, ballot, match_any, reduce_add/max/min, scan_add. They order nothing.
//              Reductions take integers only: a sum of floats depends on its order, and so would differ between
//              targets. (The maximum of |x| is the maximum of its bits without the sign; a NaN is then the largest.)
//              broadcast(value, lane): all lanes name the same one. uniform(value): the lanes that call it hold the
//              same value, and the compiler may know. What comes from memory and bounds a warp's loop or decides its
//              branch goes through one of the two: else AMD keeps masks of lanes for every loop and branch.
//              keep_in_vgpr(value) is for WarpUniform, below.
// Time         clock_ns(), pause()
// Arguments    reload(args): for the body of a loop over tokens or rows, and for the next phase of an operation, so
//              that AMD keeps no field in a register until then
//
// Memory: who calls it, what it orders, at which scope.
// clang-format off
//  verb                       | who   | what is ordered before what                                | scope
//  ----------------------------|-------|------------------------------------------------------------|------------------
//  sync_warp                  | warp  | accesses of all its lanes before, accesses of all after    | warp
//  sync_block, sync_block_or, | block | accesses of all its threads before, accesses of all after; | block
//    broadcast_block          |       | a later release by any one thread covers the stores of all |
//  load_relaxed, store_relaxed| lane  | nothing; atomic on its own word                            | gpu / system
//    fetch_add_relaxed        |       | (8-byte read-modify-writes: on words in global memory only)|
//  set_bits                   | lane  | nothing; atomic on its own 32-bit word                     | gpu
//  load_acquire               | lane  | the load before all later accesses of the lane             | gpu / system
//  store_release              | lane  | all earlier accesses of the lane before the store          | gpu / system
//  fetch_add_acq_rel          | lane  | both                                                       | gpu / system
//    compare_exchange         |       |                                                            |
//  fence_acq_rel              | lane  | all earlier before all later accesses of the lane, but no  | gpu / system
//                             |       | store before a load                                        |
//  fence_seq_cst              | lane  | all earlier before all later accesses of the lane          | system
//  publish                    | lane  | all earlier accesses of the lane, and what it has seen by  | system
//                             |       | sync_warp, sync_block or acquire, before the store         |
//  load16, store16            | lane  | nothing; not atomic; cached                                | -
//  load16_stream, store16_... | lane  | the same, without keeping the line in caches               | -
//  store_packet, load_packet  | lane  | value and epoch arrive together; nothing else is ordered   | system
//  store_line_part            | lane  | nothing; line_lanes of them, by one instruction, arrive     | system
//                             |       | together in groups whose lines arrive whole (P15)          |
//  bulk_barrier_init          | lane  | made visible to the block and to copies by sync_block      | block
//  bulk_load                  | warp  | earlier accesses of its lanes to smem before the copy      | -
//  bulk_wait_loaded           | warp  | the copy before all later accesses of its lanes            | block
//  smem_to_bulk               | warp  | earlier stores of its lanes to smem before a later         | block
//                             |       | bulk_store by the warp (or, after sync_block, the block)   |
//  bulk_store                 | warp  | starts copies; ordered with nothing until a wait           | -
//  bulk_wait_read             | warp  | the warp's bulk_stores' reads before later stores to smem  | block
//  bulk_wait_written          | warp  | the warp's bulk_stores' writes before a later publish by   | that of the
//                             |       | any of its lanes (or, after sync_block, of the block)      | publish
//  acquire_then_bulk          | warp  | a load_acquire by any of its lanes before the warp's later | that of the load
//                             |       | bulk_loads and bulk_stores                                 |
// clang-format on
// Bulk copies take another path to memory (CUDA's async proxy): an acquire alone does not order them. So
// acquire_then_bulk stands before a bulk_load of what was announced and before a bulk_store into a slot whose reuse was
// just acquired.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/arch.hpp"
#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/arch/types.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// A number that is the same for the whole warp and changes rarely: the counter of an outer loop. AMD keeps it in a
// vector register (keep_in_vgpr), and reads it as a scalar where it is used.
class WarpUniform {
 public:
  UCCLEP_FN WarpUniform(uint32_t value) : value_(keep_in_vgpr(value)) {}
  UCCLEP_FN operator uint32_t() const { return uniform(value_); }
  UCCLEP_FN WarpUniform& operator+=(uint32_t step) {
    value_ = keep_in_vgpr(value_ + step);
    return *this;
  }
  UCCLEP_FN WarpUniform& operator-=(uint32_t step) { return *this += 0 - step; }

 private:
  uint32_t value_;
};

// Scopes: who does a piece of work together. rank() of size() members; sync(), any() and first() are called by all of
// them. Of a block any() and first() are a sync as well. This one: a thread alone.
struct thread {
  // This member, the only one.
  static UCCLEP_FN unsigned rank() { return 0; }
  // The number of members.
  static UCCLEP_FN unsigned size() { return 1; }
  // What members did before it is seen by all after it.
  static UCCLEP_FN void sync() {}
  // True for all when it is for one of them.
  static UCCLEP_FN bool any(bool vote) { return vote; }
  // The value of the first member, for all.
  static UCCLEP_FN uint32_t first(uint32_t value) { return value; }
};

// N neighbouring lanes. All groups of the warp call sync() together.
template <unsigned N>
struct lanes {
  static_assert(N > 0 && wave_size % N == 0, "the groups fill the warp");
  // This member in the group.
  static UCCLEP_FN unsigned rank() { return lane_id() % N; }
  // The number of members.
  static UCCLEP_FN unsigned size() { return N; }
  // Which group of its warp this is.
  static UCCLEP_FN unsigned group() { return lane_id() / N; }
  // What members did before it is seen by all after it.
  static UCCLEP_FN void sync() { sync_warp(); }
  // True for all when it is for one of them.
  static UCCLEP_FN bool any(bool vote) {
    const uint64_t votes = ballot(vote) >> (lane_id() / N * N);
    return (votes & (~uint64_t{0} >> (64 - N))) != 0;
  }
  // The value of the first member, for all.
  static UCCLEP_FN uint32_t first(uint32_t value) { return shfl(value, lane_id() / N * N); }
};

// All lanes of a warp.
struct warp {
  // This member in the warp.
  static UCCLEP_FN unsigned rank() { return lane_id(); }
  // The number of members.
  static UCCLEP_FN unsigned size() { return wave_size; }
  // What members did before it is seen by all after it.
  static UCCLEP_FN void sync() { sync_warp(); }
  // True for all when it is for one of them.
  static UCCLEP_FN bool any(bool vote) { return ballot(vote) != 0; }
  // The value of the first member, for all.
  static UCCLEP_FN uint32_t first(uint32_t value) { return broadcast(value, 0); }
};

// All threads of a block.
struct block {
  // This member in the block.
  static UCCLEP_FN unsigned rank() { return thread_id(); }
  // The number of members.
  static UCCLEP_FN unsigned size() { return block_size(); }
  // Its warps.
  static UCCLEP_FN unsigned warps() { return block_size() / wave_size; }
  // What members did before it is seen by all after it.
  static UCCLEP_FN void sync() { sync_block(); }
  // True for all when it is for one of them.
  static UCCLEP_FN bool any(bool vote) { return sync_block_or(vote); }
  // The value of the first member, for all.
  static UCCLEP_FN uint32_t first(uint32_t value) { return broadcast_block(value); }
};

// The bound of a wait. Which phase and peer it concerned is for the caller to record when wait_until says false.
struct Wait {
  uint64_t start_ns;           // as of clock_ns()
  uint64_t limit_ns;           // for which it may go on
  const uint32_t* abort_word;  // non-zero: everybody stops
};

// A wait that begins now.
UCCLEP_FN Wait begin_wait(uint64_t limit_ns, const uint32_t* abort_word) {
  return {clock_ns(), limit_ns, abort_word};
}

// What a loop of polls counts on from once the time is up: the next one is its last.
constexpr unsigned polls_when_late = 1u << 31;

// Has the wait taken all of its time?
UCCLEP_FN bool timed_out(const Wait& wait) {
  return clock_ns() - wait.start_ns >= wait.limit_ns;
}

// Is everybody to stop?
UCCLEP_FN bool aborted(const Wait& wait) {
  return load_relaxed<Scope::system>(wait.abort_word) != 0;
}

// Spins until predicate() is true; false when the time is up or the abort word is set. The predicate acquires what it
// needs. It is asked at least once, also after the deadline: what has arrived counts.
template <class Predicate>
UCCLEP_FN bool wait_until(const Wait& wait, Predicate&& predicate) {
  for (unsigned polls = 1; !predicate(); ++polls) {
    if (polls > polls_when_late || (polls % 32 == 0 && aborted(wait))) return false;
    if (polls % 32 == 0 && timed_out(wait)) polls = polls_when_late;
    pause();
  }
  return true;
}

// Block verb: all accesses of all threads of the grid before it are ordered before all accesses after it (gpu scope).
// All blocks must be resident (a cooperative launch). Every thread of a block gets the same answer; false: not all
// blocks came in time, or abort.
UCCLEP_FN bool grid_sync(GridBarrier* barrier, const Wait& wait) {
  sync_block();
  bool complete = true;
  if (thread_id() == 0) {
    // Read before arriving: the generation cannot move until this block has arrived.
    const uint32_t generation = load_relaxed<Scope::gpu>(&barrier->generation);
    if (fetch_add_acq_rel<Scope::gpu>(&barrier->arrived, uint32_t{1}) + 1 == grid_size()) {
      store_relaxed<Scope::gpu>(&barrier->arrived, uint32_t{0});
      store_release<Scope::gpu>(&barrier->generation, generation + 1);
    } else {
      complete = wait_until(wait, [&] { return load_acquire<Scope::gpu>(&barrier->generation) != generation; });
    }
  }
  return !sync_block_or(!complete);
}

// Shared memory that a block-level scan or reduction of T needs, in elements.
constexpr unsigned block_scratch = 512 / wave_size;

// Block verb: the sum of `value` over all threads with a lower rank; *total gets the sum over all. scratch lies in
// shared memory and may be used again at once.
template <class T>
UCCLEP_FN T block_scan_exclusive(T value, T* scratch, T* total) {
  const T inclusive = scan_add(value);
  if (lane_id() == wave_size - 1) scratch[warp_id()] = inclusive;
  sync_block();
  T before = 0;
  T sum = 0;
  for (unsigned i = 0; i < block::warps(); ++i) {
    if (i == warp_id()) before = sum;
    sum += scratch[i];
  }
  sync_block();
  *total = sum;
  return before + inclusive - value;
}

// Block verb: every thread gets the sum of `value` over the block. scratch as above.
template <class T>
UCCLEP_FN T block_reduce_add(T value, T* scratch) {
  const T of_warp = reduce_add(value);
  if (lane_id() == 0) scratch[warp_id()] = of_warp;
  sync_block();
  T sum = 0;
  for (unsigned i = 0; i < block::warps(); ++i) sum += scratch[i];
  sync_block();
  return sum;
}

// Block verb: every thread gets the maximum of `value` over the block. scratch as above.
template <class T>
UCCLEP_FN T block_reduce_max(T value, T* scratch) {
  const T of_warp = reduce_max(value);
  if (lane_id() == 0) scratch[warp_id()] = of_warp;
  sync_block();
  T largest = scratch[0];
  for (unsigned i = 1; i < block::warps(); ++i) largest = scratch[i] > largest ? scratch[i] : largest;
  sync_block();
  return largest;
}

// Verb of the members: 16-byte vectors, several of each member under way; bytes: a multiple of 16, as both addresses
// are. Members: a scope, or what has its rank and size.
template <class Members>
UCCLEP_FN void copy_vectors(char* to, const char* from, uint64_t bytes) {
  constexpr uint32_t in_flight = 4, unit = sizeof(vec16);
  const uint64_t units = bytes / unit, step = Members::size();
  uint64_t i = Members::rank();
  for (; i + (in_flight - 1) * step < units; i += in_flight * step) {
    vec16 values[in_flight];
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < in_flight; ++j) values[j] = load16(from + unit * (i + j * step));
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < in_flight; ++j) store16(to + unit * (i + j * step), values[j]);
  }
  for (; i < units; i += step) store16(to + unit * i, load16(from + unit * i));
}

}  // namespace UCCLEP_SIMT_NAMESPACE
