// SPDX-License-Identifier: Apache-2.0
#include "simt_check.hpp"

#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN void simt_expect(const SimtCheckArgs& args, SimtCheck check, bool right) {
  if (!right) fetch_add_relaxed<Scope::gpu>(&args.wrong[static_cast<unsigned>(check)], 1u);
}

template <class T>
UCCLEP_FN void check_warp_values(const SimtCheckArgs& args) {
  constexpr T last = wave_size - 1;
  const T lane = static_cast<T>(lane_id());
  const T three = 3;
  bool right = shfl(lane * three, 5) == 15;
  right &= broadcast(lane * three, last) == last * three;
  right &= shfl_xor(lane, 9) == static_cast<T>(lane_id() ^ 9);
  right &= shfl_up(lane, 2) == (lane_id() < 2 ? lane : lane - 2);
  right &= reduce_add(lane) == last * (last + 1) / 2;
  right &= reduce_max(lane - 7) == last - 7 || T(-1) > 0;  // wraps when T is unsigned
  right &= reduce_min(lane + 4) == 4;
  right &= scan_add(lane) == lane * (lane + 1) / 2;
  simt_expect(args, SimtCheck::warp_values, right);
}

UCCLEP_FN void check_votes(const SimtCheckArgs& args) {
  uint64_t odd = 0;
  uint64_t same_fifth = 0;
  for (unsigned i = 0; i < wave_size; ++i) {
    odd |= uint64_t{i % 2} << i;
    same_fifth |= uint64_t{i % 5 == lane_id() % 5} << i;
  }
  simt_expect(args, SimtCheck::warp_values, ballot(lane_id() % 2 == 1) == odd);
  simt_expect(args, SimtCheck::warp_values, match_any(lane_id() % 5) == same_fifth);
}

// All threads of the grid count on two words; after a grid barrier the counts are full.
template <class T>
UCCLEP_FN bool check_words(const SimtCheckArgs& args, T* words, SimtCheck check, const Wait& wait) {
  fetch_add_relaxed<Scope::gpu>(&words[0], T{1});
  T seen = load_relaxed<Scope::system>(&words[1]);
  while (!compare_exchange<Scope::system>(&words[1], seen, static_cast<T>(seen + 2))) {
    if (aborted(wait) || timed_out(wait)) break;
  }
  if (!grid_sync(static_cast<GridBarrier*>(args.grid_barrier), wait)) {
    simt_expect(args, SimtCheck::grid, false);
    return false;
  }
  const T threads = static_cast<T>(block_size()) * static_cast<T>(grid_size());
  simt_expect(args, check, load_acquire<Scope::gpu>(&words[0]) == threads);
  simt_expect(args, check, load_acquire<Scope::system>(&words[1]) == 2 * threads);
  return true;
}

UCCLEP_FN void check_block(const SimtCheckArgs& args, uint32_t* scratch) {
  const uint32_t rank = block::rank();
  const uint32_t size = block::size();
  uint32_t total = 0;
  bool right = block_scan_exclusive(rank, scratch, &total) == rank * (rank - 1) / 2;
  right &= total == size * (size - 1) / 2;
  right &= block_reduce_add(2u, scratch) == 2 * size;
  right &= block_reduce_max(rank, scratch) == size - 1;
  right &= sync_block_or(rank == size - 1) && !sync_block_or(false);
  right &= broadcast_block(size - rank) == size && block::first(~rank) == ~0u;
  simt_expect(args, SimtCheck::block, right);
}

UCCLEP_FN bool right_row(const SimtCheckArgs& args, const unsigned char* row, unsigned index) {
  unsigned wrong = 0;
  for (unsigned i = lane_id(); i < args.row_bytes; i += wave_size) wrong += row[i] != (7 * index + i) % 251;
  return wrong == 0;
}

// Each warp copies its row twice through shared memory; the block announces it to the next one, which checks it.
UCCLEP_FN void check_copies(const SimtCheckArgs& args, unsigned char* shared, const Wait& wait) {
  BulkBarrier* barrier = reinterpret_cast<BulkBarrier*>(shared) + warp_id();
  unsigned char* row = shared + 256 + warp_id() * args.row_bytes;
  auto* packets = static_cast<Packet*>(args.packets);
  const unsigned warps = block::warps();
  const unsigned all_warps = warps * grid_size();
  const unsigned mine = block_id() * warps + warp_id();
  if (lane_id() == 0) bulk_barrier_init(barrier);
  sync_block();
  bulk_load(row, args.source + size_t{mine} * args.row_bytes, args.row_bytes, barrier);
  bulk_wait_loaded(barrier, 0);
  simt_expect(args, SimtCheck::bulk, right_row(args, row, mine));
  bulk_store(lane_id() % 8 == 3 && lane_id() < 16,
             args.copies + size_t{lane_id() / 8 * all_warps + mine} * args.row_bytes, row, args.row_bytes);
  bulk_wait_read();
  bulk_wait_written();
  sync_block();
  if (thread_id() == 0) {
    publish(&args.words[4 + block_id()], args.epoch);
    store_packet(&packets[block_id()], 3 * args.epoch, args.epoch);
  }
  const unsigned next = (block_id() + 1) % grid_size();
  bool arrived = true;
  if (lane_id() == 0) {
    arrived = wait_until(wait, [&] { return load_acquire<Scope::system>(&args.words[4 + next]) == args.epoch; });
    simt_expect(args, SimtCheck::publish, arrived);
    Packet packet = {};
    arrived &= wait_until(wait, [&] { return (packet = load_packet(&packets[next])).epoch == args.epoch; });
    simt_expect(args, SimtCheck::packet, arrived && packet.value == 3 * args.epoch);
  }
  if (ballot(!arrived) != 0) return;
  sync_warp();
  const unsigned theirs = next * warps + warp_id();
  for (unsigned copy = 0; copy < 2; ++copy) {
    const unsigned char* at = args.copies + size_t{copy * all_warps + theirs} * args.row_bytes;
    simt_expect(args, SimtCheck::bulk, right_row(args, at, theirs));
    const vec16 first = load16(at);
    const vec16 again = load16_stream(at);
    simt_expect(args, SimtCheck::bulk,
                first.x == again.x && first.y == again.y && first.z == again.z && first.w == again.w);
  }
}

// A NaN is one, whichever.
UCCLEP_FN bool same(float a, float b) {
  return float_bits(a) == float_bits(b) || (a != a && b != b);
}

// What a target converts by instructions, against the arithmetic that the host's test covers: all narrow numbers, and
// the fp32 numbers that begin like one of bf16, at ties and beside them.
UCCLEP_FN bool right_conversions() {
  constexpr uint32_t ties = 0x8310;  // of rounding away the lower half, 13 bits, or nothing: the first of four digits
  constexpr uint32_t one_bf16 = 0x3f80, one_fp16 = 0x3c00, one_e4m3 = 0x38;
  bool right = true;
  for (uint32_t code = block_id() * block_size() + thread_id(); code < 0x10000; code += grid_size() * block_size()) {
    const Pair bf16 = widen(Bf16{}, code | one_bf16 << 16), fp16 = widen(Fp16{}, code | one_fp16 << 16);
    right &= same(bf16.low, from_bf16(static_cast<uint16_t>(code))) && bf16.high == 1;
    right &= same(fp16.low, from_fp16(static_cast<uint16_t>(code))) && fp16.high == 1;
    for (uint32_t i = 0; i < 12; ++i) {
      const uint32_t rest = ((ties >> i / 3 * 4 & 0xf) << 12) + i % 3 - 1;
      const float x = float_of(code << 16 | (rest & 0xffff));
      const uint32_t to_bf16_here = narrow(Bf16{}, {1, x}), to_fp16_here = narrow(Fp16{}, {x, 1});
      right &= (to_bf16_here & 0xffff) == one_bf16 && to_fp16_here >> 16 == one_fp16;
      right &= same(from_bf16(static_cast<uint16_t>(to_bf16_here >> 16)), from_bf16(to_bf16(x)));
      right &= same(from_fp16(static_cast<uint16_t>(to_fp16_here)), from_fp16(to_fp16(x)));
      right &= to_e4m3_pair(x, 1) == (to_e4m3(x) | one_e4m3 << 8);
    }
  }
  return right && to_bf16(1.00390625f) == 0x3f80 && to_fp16(65520.0f) == 0x7c00 && to_e4m3(465.0f) == 0x7e &&
         to_e8m0_up(1.5f) == 128;
}

// What arrives while nobody looks counts, also when the time is up by the next look at the clock, after 32 polls.
UCCLEP_FN bool looks_once_more(const SimtCheckArgs& args) {
  unsigned polls = 0;
  return wait_until(begin_wait(0, args.abort_word), [&] { return ++polls > 32; });
}

}  // namespace UCCLEP_SIMT_NAMESPACE

namespace ucclep {

UCCLEP_KERNEL(simt_check, SimtCheckArgs) {
  const Wait wait = begin_wait(args.limit_ns, args.abort_word);
  auto* shared = static_cast<unsigned char*>(shared_memory());
  check_warp_values<int32_t>(args);
  check_warp_values<uint32_t>(args);
  check_warp_values<int64_t>(args);
  check_warp_values<uint64_t>(args);
  check_votes(args);
  check_block(args, reinterpret_cast<uint32_t*>(shared));
  simt_expect(args, SimtCheck::numeric, right_conversions());
  simt_expect(args, SimtCheck::waits, looks_once_more(args));
  if (!check_words(args, reinterpret_cast<int32_t*>(args.words), SimtCheck::words_4, wait)) return;
  if (!check_words(args, args.words + 2, SimtCheck::words_8, wait)) return;
  check_copies(args, shared, wait);
  fetch_add_relaxed<Scope::gpu>(args.done, 1u);
}

}  // namespace ucclep
