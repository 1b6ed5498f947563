// SPDX-License-Identifier: Apache-2.0
// Kernels that know the device API by ucclep/device_library.h alone dispatch, combine, put and signal, by blocks and by
// warps, with objects in the C layout. On the CPU the functions are compiled with them.
#include <ucclep/device_library.h>

#include "../../examples/example.hpp"
#include "../../src/device/library/device_library.cu"

constexpr uint32_t E = 8, K = 2, T = 12, H = 64, blocks = 3, threads = 64, bytes = 4096;

struct Call {
  uint64_t handle, group, window, ops, x, rows, experts, weights, received, result, good;
  uint32_t rank, ranks, round, by_warp;
};

// The scope of a call: all threads of a block, or the lanes of its warps, which share out the work.
struct Members {
  uint32_t index, count, rank, size;

  static UCCLEP_FN Members of(const Call& call) {
    const uint32_t warps = ucclep::block_size() / ucclep::wave_size;
    if (call.by_warp == 0) return {ucclep::block_id(), blocks, ucclep::thread_id(), ucclep::block_size()};
    return {ucclep::block_id() * warps + ucclep::warp_id(), blocks * warps, ucclep::lane_id(), ucclep::wave_size};
  }
};
// ucclep_NAME_warp or ucclep_NAME_block.
#define AS_SCOPE(name, ...) (args.by_warp != 0 ? ucclep_##name##_warp(__VA_ARGS__) : ucclep_##name##_block(__VA_ARGS__))

UCCLEP_FN void vote(const Call& args, bool ok) {
  if (!ok) ucclep::store_relaxed<ucclep::Scope::gpu>(reinterpret_cast<uint32_t*>(args.good), 0u);
}
UCCLEP_FN void scale(const Members& here, uint64_t to, uint64_t from, float factor) {
  for (uint32_t i = here.rank; i < H; i += here.size) {
    reinterpret_cast<float*>(to)[i] = reinterpret_cast<const float*>(from)[i] * factor;
  }
}

UCCLEP_KERNEL(dispatch_by_name, Call) {
  const Members here = Members::of(args);
  const uint64_t op = args.ops + ucclep::block_id() * UCCLEP_DEVICE_OPERATION_BYTES;
  const uint32_t local = E / args.ranks, slab = args.ranks * T;
  bool ok = ucclep_ll_dispatch_begin_block(args.handle, op, H, ucclEpFloat32, 0, 0, K, 1) != 0;
  for (uint32_t token = here.index; token < T; token += here.count) {
    const uint64_t row = args.rows + uint64_t{token} * H * 4;
    scale(here, row, args.x + uint64_t{token} * H * 4, 2);
    ok &= AS_SCOPE(ll_dispatch_send, op, token, row, 0, args.experts + uint64_t{token} * K * 8, 8,
                   args.weights + uint64_t{token} * K * 4) != 0;
  }
  ok &= ucclep_ll_dispatch_end_block(op, T) != 0;
  for (uint32_t zone = 0; zone < local; ++zone) {
    const int32_t count = AS_SCOPE(ll_dispatch_rows, op, zone);
    ok &= count >= 0;
    for (uint32_t row = here.index; static_cast<int32_t>(row) < count; row += here.count) {
      const uint32_t index = zone * slab + row;
      ok &= AS_SCOPE(ll_dispatch_recv, op, args.received, 0, 0, 0, 0, index, index + 1) != 0;
      const uint64_t at = args.received + uint64_t{index} * H * 4;
      scale(here, at, at, static_cast<float>(1 + args.rank * local + zone));
    }
  }
  vote(args, ok);
}

UCCLEP_KERNEL(combine_by_name, Call) {
  const Members here = Members::of(args);
  const uint64_t op = args.ops + ucclep::block_id() * UCCLEP_DEVICE_OPERATION_BYTES;
  bool ok = ucclep_ll_combine_begin_block(args.handle, op, H, ucclEpFloat32, K) != 0;
  for (uint32_t zone = 0; zone < E / args.ranks; ++zone) {
    const int32_t count = AS_SCOPE(ll_combine_rows, op, zone);
    for (uint32_t row = here.index; static_cast<int32_t>(row) < count; row += here.count) {
      const uint32_t index = zone * args.ranks * T + row;
      ok &= AS_SCOPE(ll_combine_send, op, index, args.received + uint64_t{index} * H * 4) != 0;
    }
  }
  ok &= ucclep_ll_combine_end_block(op) != 0;
  for (uint32_t token = here.index; token < T; token += here.count) {
    ok &= AS_SCOPE(ll_combine_recv, op, args.result, 0, 0, token, token + 1) != 0;
  }
  vote(args, ok);
}

// The second part of this rank's window into the first part of the next rank's, and once more.
UCCLEP_KERNEL(put_by_name, Call) {
  const Members here = Members::of(args);
  if (here.index != 0) return;
  const auto next = static_cast<int32_t>((args.rank + 1) % args.ranks);
  bool ok = AS_SCOPE(put, args.group, next, args.window, 0, args.window, bytes, bytes / 2) != 0;
  ok &=
      AS_SCOPE(put_signal, args.group, next, args.window, bytes / 2, args.window, bytes + bytes / 2, bytes / 2, 0) != 0;
  ok &= AS_SCOPE(wait_signal, args.group, 0, args.round) != 0;
  ok &= AS_SCOPE(signal, args.group, next, 1) != 0;
  ok &= AS_SCOPE(wait_signal, args.group, 1, args.round) != 0;
  ok &= AS_SCOPE(flush, args.group) != 0;
  ok &= AS_SCOPE(barrier, args.group, 1) != 0;
  vote(args, ok);
}

template <class T>
T* allocate(ucclEpComm_t comm, size_t count) {
  void* memory = nullptr;
  CHECK(ucclEpMemAllocHost(comm, &memory, count * sizeof(T)));
  return static_cast<T*>(memory);
}
template <class T>
uint64_t address(const T* at) {
  return reinterpret_cast<uint64_t>(at);
}

// An object as a program in C, or in Python, makes it.
template <class Layout, class Owner, class Object>
uint64_t object(ucclEpComm_t comm, Owner owner, ucclEpResult_t (*fill)(Owner, Object*), unsigned magic) {
  auto* there = allocate<Layout>(comm, 1);
  *there = {};
  there->size = sizeof(Layout), there->magic = magic, there->abi = UCCLEP_DEVICE_ABI;
  CHECK(fill(owner, reinterpret_cast<Object*>(there)));
  return address(there);
}

struct Memory {
  float *x, *weights, *result;
  int64_t* experts;
  unsigned char* window;
  uint32_t* good;
};

void fill(const Memory& memory, uint32_t rank) {
  for (uint32_t i = 0; i < T * H; ++i) memory.x[i] = static_cast<float>((i * 31 + rank * 7) % 17) - 8;
  for (uint32_t i = 0; i < T * K; ++i) memory.weights[i] = 1.0f / static_cast<float>(1 << (i + rank) % 4);
  for (uint32_t t = 0; t < T; ++t) {
    memory.experts[t * K] = (t * 5 + rank) % E;
    memory.experts[t * K + 1] = (t * 5 + rank + 1 + t % (E - 1)) % E;
  }
  for (uint32_t i = 0; i < bytes; ++i) memory.window[bytes + i] = static_cast<unsigned char>(i * 13 + rank);
}

int wrong_values(const Memory& memory, uint32_t rank, uint32_t ranks) {
  int wrong = *memory.good == 1 ? 0 : 1;
  for (uint32_t t = 0; t < T; ++t) {
    float factor = 0;
    for (uint32_t k = t * K; k < (t + 1) * K; ++k) {
      factor += memory.weights[k] * static_cast<float>(1 + memory.experts[k]);
    }
    for (uint32_t i = t * H; i < (t + 1) * H; ++i) wrong += memory.result[i] != 2 * memory.x[i] * factor;
  }
  const uint32_t before = (rank + ranks - 1) % ranks;
  for (uint32_t i = 0; i < bytes; ++i) wrong += memory.window[i] != static_cast<unsigned char>(i * 13 + before);
  return wrong;
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * 4;
  shape.num_signals = 2;
  ucclEpGroup_t group;
  CHECK(ucclEpGroupCreate(&group, comm, &shape));
  ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
  config.mode = UCCLEP_MODE_LL, config.layout = UCCLEP_LAYOUT_EXPERT_MAJOR;
  ucclEpHandle_t handle;
  CHECK(ucclEpHandleCreate(&handle, group, &config));
  void* part = nullptr;
  CHECK(ucclEpMemAlloc(comm, &part, 2 * bytes));
  ucclEpWindow_t window;
  CHECK(ucclEpWindowRegister(comm, part, 2 * bytes, &window));

  Memory memory{allocate<float>(comm, T * H),   allocate<float>(comm, T * K),      allocate<float>(comm, T * H),
                allocate<int64_t>(comm, T * K), static_cast<unsigned char*>(part), allocate<uint32_t>(comm, 1)};
  fill(memory, static_cast<uint32_t>(rank));
  *memory.good = 1;
  Call call{};
  call.handle = object<ucclEpDeviceHandleLayout_t>(comm, handle, ucclEpHandleGetDevice, UCCLEP_DEVICE_HANDLE_MAGIC);
  call.group = object<ucclEpDeviceGroupLayout_t>(comm, group, ucclEpGroupGetDevice, UCCLEP_DEVICE_GROUP_MAGIC);
  call.window = object<ucclEpDeviceWindowLayout_t>(comm, window, ucclEpWindowGetDevice, UCCLEP_DEVICE_WINDOW_MAGIC);
  call.ops = address(allocate<char>(comm, blocks * UCCLEP_DEVICE_OPERATION_BYTES));
  call.x = address(memory.x), call.weights = address(memory.weights), call.experts = address(memory.experts);
  call.result = address(memory.result), call.good = address(memory.good);
  call.rows = address(allocate<float>(comm, T * H));
  call.received = address(allocate<float>(comm, uint64_t{E} * T * H));
  call.rank = static_cast<uint32_t>(rank), call.ranks = static_cast<uint32_t>(ranks);
  int wrong = 0;
  for (call.round = 1; call.round <= 4; ++call.round) {
    call.by_warp = call.round % 2;
    std::memset(memory.window, 0, bytes);
    std::memset(memory.result, 0xff, T * H * 4);
    CHECK(ucclEpStreamSynchronize(comm, nullptr));
    LAUNCH(comm, dispatch_by_name, blocks, threads, call);
    LAUNCH(comm, combine_by_name, blocks, threads, call);
    LAUNCH(comm, put_by_name, blocks, threads, call);
    CHECK(ucclEpStreamSynchronize(comm, nullptr));
    wrong += wrong_values(memory, call.rank, call.ranks);
  }
  return example::report(rank, wrong, 4 * static_cast<int>(T * H + bytes));
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
