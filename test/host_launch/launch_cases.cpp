// SPDX-License-Identifier: Apache-2.0
// Kernels of users on the host device, in a program that links libucclep.so alone. It is compiled for each wave size.
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "../device/simt_check.cpp"
#include "kernels.hpp"
#include "support/environment.hpp"
#include "support/ep.hpp"
#if defined(UCCLEP_TSAN)
#include "support/race.hpp"
#endif

namespace ucclep::test {
namespace {

constexpr unsigned blocks = 3, threads = 2 * UCCLEP_WAVE, all = blocks * threads;
constexpr unsigned other_wave = 96 - UCCLEP_WAVE;

// Memory of the device, zero.
template <class T>
T* allocate(ucclEpComm_t comm, size_t count) {
  void* memory = nullptr;
  ok(ucclEpMemAlloc(comm, &memory, count * sizeof(T)), "ucclEpMemAlloc");
  return static_cast<T*>(memory);
}

ucclEpResult_t launch_rotate(ucclEpComm_t comm, const RotateArgs& args, ucclEpStream_t stream) {
  return ucclEpHostLaunch(comm, ucclep_rotate, blocks, threads, threads * sizeof(uint32_t), args, stream);
}

std::vector<uint32_t> rotated(const std::vector<uint32_t>& words, uint32_t add) {
  std::vector<uint32_t> result(all);
  for (unsigned i = 0; i < all; ++i) {
    const unsigned block = i / threads, next = (i % threads + 1) % threads;
    result[i] = words[block * threads + next] + add;
  }
  return result;
}

std::vector<uint32_t> numbers() {
  std::vector<uint32_t> words(all);
  std::iota(words.begin(), words.end(), 1000u);
  return words;
}

void copy(ucclEpComm_t comm, void* to, const void* from, ucclEpStream_t stream) {
  ok(ucclEpMemcpy(comm, to, from, all * sizeof(uint32_t), stream), "ucclEpMemcpy");
}

TEST_CASE("host launch: a kernel runs in its stream's order, with the arguments of the call", "[host_launch]") {
  run_ranks(1, [](Rank& rank) {
    const Comm comm(rank);
    Stream stream(comm);
    auto* words = allocate<uint32_t>(comm, all);
    auto* open = allocate<uint32_t>(comm, 1);
    const std::vector<uint32_t> first = numbers();
    std::vector<uint32_t> got(all);
    ok(ucclEpHostLaunch(comm, ucclep_gate, 1, 1, 0, GateArgs{open}, stream), "ucclEpHostLaunch");
    copy(comm, words, first.data(), stream);
    RotateArgs args{words, 5};
    ok(launch_rotate(comm, args, stream), "ucclEpHostLaunch");
    args.add = 70;
    ok(launch_rotate(comm, args, stream), "ucclEpHostLaunch");
    args = {};
    copy(comm, got.data(), words, stream);
    std::atomic_ref(*open).store(1, std::memory_order_release);
    stream.synchronize();
    require(got == rotated(rotated(first, 5), 70), "the words are not those of both launches");
  });
}

TEST_CASE("host launch: a kernel is captured into a graph, and replayed", "[host_launch]") {
  run_ranks(1, [](Rank& rank) {
    const Comm comm(rank);
    Stream stream(comm);
    auto* words = allocate<uint32_t>(comm, all);
    std::vector<uint32_t> expected = numbers(), got(all);
    copy(comm, words, expected.data(), stream);
    stream.synchronize();
    ok(ucclEpStreamBeginCapture(comm, stream), "ucclEpStreamBeginCapture");
    RotateArgs args{words, 3};
    ok(launch_rotate(comm, args, stream), "ucclEpHostLaunch");
    args = {};
    ucclEpGraph_t graph = nullptr;
    ok(ucclEpStreamEndCapture(comm, stream, &graph), "ucclEpStreamEndCapture");
    copy(comm, got.data(), words, stream);
    stream.synchronize();
    require(got == expected, "the kernel ran while it was captured");
    for (int replay = 0; replay < 3; ++replay) {
      ok(ucclEpGraphLaunch(comm, graph, stream), "ucclEpGraphLaunch");
      expected = rotated(expected, 3);
    }
    copy(comm, got.data(), words, stream);
    stream.synchronize();
    require(got == expected, "the words are not those of three replays");
    ok(ucclEpGraphDestroy(comm, graph), "ucclEpGraphDestroy");
  });
}

struct Shared {
  uint32_t* lanes;
};
void count_lanes_of_grid(const void* args) {
  fetch_add_relaxed<Scope::gpu>(static_cast<const Shared*>(args)->lanes, 1u);
}

TEST_CASE("host launch: a function that is no UCCLEP_KERNEL", "[host_launch]") {
  run_ranks(1, [](Rank& rank) {
    const Comm comm(rank);
    const Shared args{allocate<uint32_t>(comm, 1)};
    ok(ucclEpHostLaunch(comm, &count_lanes_of_grid, blocks, threads, 0, &args, sizeof args, nullptr),
       "ucclEpHostLaunch");
    ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
    require(*args.lanes == all, "not every lane ran once");
  });
}

void try_every_verb(Rank& rank) {
  constexpr unsigned row_bytes = 1024, warps = 2, rows = blocks * warps * row_bytes;
  const Comm comm(rank);
  auto* words = allocate<uint32_t>(comm, 1024);
  SimtCheckArgs args{};
  args.wrong = words, args.done = words + 100, args.grid_barrier = words + 200, args.abort_word = words + 300;
  args.words = allocate<uint64_t>(comm, 4 + blocks);
  args.packets = allocate<Packet>(comm, blocks);
  auto* source = allocate<unsigned char>(comm, rows);
  for (unsigned i = 0; i < rows; ++i)
    source[i] = static_cast<unsigned char>((7 * (i / row_bytes) + i % row_bytes) % 251);
  args.source = source;
  args.copies = allocate<unsigned char>(comm, size_t{2} * rows);
  args.row_bytes = row_bytes, args.epoch = 1, args.limit_ns = 30'000'000'000;
  ok(ucclEpHostLaunch(comm, ucclep_simt_check, blocks, threads, simt_check_shared_bytes(warps, row_bytes), args,
                      nullptr),
     "ucclEpHostLaunch");
  ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
  for (unsigned i = 0; i < static_cast<unsigned>(SimtCheck::count); ++i) {
    require(args.wrong[i] == 0, "check " + std::to_string(i) + " of simt_check counts wrong results");
  }
  require(*args.done == all, "not every thread came to the end");
}

TEST_CASE("host launch: every verb, in all modes", "[host_launch]") {
  run_ranks(1, try_every_verb);
  for (const char* mode : {"lockstep", "deferred", "residency=3"}) {
    for (const char* seed : {"1", "2"}) {
      const Environment modes("UCCLEP_HOST_MODE", mode), seeds("UCCLEP_HOST_SEED", seed);
      run_ranks(1, try_every_verb);
    }
  }
}

TEST_CASE("host launch: a kernel sends tokens to ranks whose library receives them", "[host_launch]") {
  run_ranks(2, [](Rank& rank) {
    const Comm comm(rank);
    ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
    shape.num_experts = experts, shape.top_k = top_k, shape.max_tokens_per_rank = tokens;
    shape.max_token_bytes = hidden * sizeof(float);
    const Group group = make_group(comm, shape);
    ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
    config.mode = UCCLEP_MODE_LL, config.layout = UCCLEP_LAYOUT_EXPERT_MAJOR;
    const Handle handle = make_handle(group, config);
    auto* rows = allocate<float>(comm, tokens * hidden);
    auto* weights = allocate<float>(comm, tokens * top_k);
    auto* ids = allocate<int32_t>(comm, tokens * top_k);
    auto* result = allocate<float>(comm, tokens * hidden);
    for (int i = 0; i < tokens * hidden; ++i) rows[i] = static_cast<float>(rank.rank * 1000 + i);
    for (int i = 0; i < tokens * top_k; ++i) {
      weights[i] = 0.5f;
      ids[i] = (rank.rank + i / top_k + i % top_k * experts / 2) % experts;
    }
    const auto tensor = [](float* data, std::initializer_list<int64_t> sizes) {
      ucclEpTensor_t made = UCCLEP_TENSOR_INIT;
      made.dtype = ucclEpFloat32, made.data = data;
      for (const int64_t size : sizes) made.sizes[made.ndim++] = size;
      return made;
    };
    const int local = experts / rank.count, slab = rank.count * tokens;
    const ucclEpTensor_t received =
        tensor(allocate<float>(comm, size_t{experts} * tokens * hidden), {local, slab, hidden});
    const ucclEpTensor_t back = tensor(result, {tokens, hidden});
    ucclEpDispatchOutputs_t out = UCCLEP_DISPATCH_OUTPUTS_INIT;
    out.tokens = &received;
    ucclEpCombineInputs_t in = UCCLEP_COMBINE_INPUTS_INIT;
    in.tokens = &received;
    ucclEpCombineOutputs_t combined = UCCLEP_COMBINE_OUTPUTS_INIT;
    combined.tokens = &back;
    SendArgs args{{}, {hidden, ucclEpFloat32}, rows, weights, ids};
    args.shape.top_k = top_k;
    ok(ucclEpHandleGetDevice(handle, &args.handle), "ucclEpHandleGetDevice");
    for (int round = 0; round < 5; ++round) {
      ok(ucclEpHostLaunch(comm, ucclep_send_tokens, 2, threads, 0, args, nullptr), "ucclEpHostLaunch");
      ok(ucclEpCompleteDispatch(handle, &out, nullptr, nullptr), "ucclEpCompleteDispatch");
      ok(ucclEpCombine(handle, &in, &combined, nullptr, nullptr), "ucclEpCombine");
      ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
      require(std::equal(rows, rows + tokens * hidden, result), "a token did not come back as it was");
      std::fill_n(result, tokens * hidden, -1.0f);
    }
  });
}

TEST_CASE("host launch: what is refused", "[host_launch]") {
  run_ranks(1, [](Rank& rank) {
    const Comm comm(rank);
    const RotateArgs args{allocate<uint32_t>(comm, all), 1};
    const auto launch = [&](unsigned grid, unsigned block, size_t shared_bytes) {
      return ucclEpHostLaunch(comm, ucclep_rotate, grid, block, shared_bytes, args, nullptr);
    };
    const char* call = "ucclEpHostLaunch";
    refused(launch(0, threads, 512), ucclEpInvalidArgument, call, {"kernel rotate", "0 blocks", "at least 1 block"});
    refused(launch(1, 0, 512), ucclEpInvalidArgument, call, {"0 threads", "1 to 1024 threads"});
    refused(launch(1, 1025, 512), ucclEpInvalidArgument, call, {"1025 threads", "1 to 1024 threads"});
    refused(launch(1, 1, 196609), ucclEpInvalidArgument, call, {"196609 bytes", "at most 196608 bytes"});
    refused(launch_rotate(nullptr, args, nullptr), ucclEpInvalidArgument, call, {"comm is NULL"});
    refused(launch_rotate(comm, args, reinterpret_cast<ucclEpStream_t>(&rank)), ucclEpInvalidArgument, call,
            {"stream", "ucclEpStreamCreate"});
    const auto raw = [&](void (*kernel)(const void*), const void* of_kernel, size_t bytes) {
      return ucclEpHostLaunch(comm, kernel, 1, 1, 0, of_kernel, bytes, nullptr);
    };
    refused(raw(nullptr, &args, sizeof args), ucclEpInvalidArgument, call, {"kernel is NULL"});
    refused(raw(ucclep_rotate.function, nullptr, sizeof args), ucclEpInvalidArgument, call, {"args is NULL"});
    no_async_error(comm);
  });
}

TEST_CASE("host launch: a kernel for another wave is refused", "[host_launch]") {
  const Environment wave("UCCLEP_HOST_WAVE", std::to_string(other_wave));
  run_ranks(1, [](Rank& rank) {
    const Comm comm(rank);
    const RotateArgs args{allocate<uint32_t>(comm, all), 1};
    refused(launch_rotate(comm, args, nullptr), ucclEpInvalidArgument, "ucclEpHostLaunch",
            {"kernel rotate", "waves of " + std::to_string(UCCLEP_WAVE), "waves of " + std::to_string(other_wave)});
  });
}

TEST_CASE("host launch: a grid that is not resident at once is refused", "[host_launch]") {
  const Environment mode("UCCLEP_HOST_MODE", "residency=2");
  run_ranks(1, [](Rank& rank) {
    const Comm comm(rank);
    const RotateArgs args{allocate<uint32_t>(comm, all), 1};
    refused(launch_rotate(comm, args, nullptr), ucclEpInvalidArgument, "ucclEpHostLaunch",
            {"kernel rotate", "3 blocks cannot be resident at once", "room for 2"});
    ok(ucclEpHostLaunch(comm, ucclep_rotate, 2, threads, threads * sizeof(uint32_t), args, nullptr),
       "ucclEpHostLaunch");
    ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
  });
}

TEST_CASE("host launch: a run-time of another version is refused", "[host_launch]") {
  CHECK(ucclEpHostRuntime(executor::runtime_abi) != nullptr);
  CHECK(ucclEpHostRuntime(executor::runtime_abi + 1) == nullptr);
  const std::string message = ucclEpGetLastError(nullptr);
  CHECK(message.find("version 2 of the host device's run-time, this library has version 1") != std::string::npos);
}

#if defined(UCCLEP_TSAN)
void run_once(const HostKernelOf<RotateArgs>& kernel) {
  run_ranks(1, [&](Rank& rank) {
    const Comm comm(rank);
    const RotateArgs args{allocate<uint32_t>(comm, all), 1};
    ok(ucclEpHostLaunch(comm, kernel, blocks, threads, threads * sizeof(uint32_t), args, nullptr), "ucclEpHostLaunch");
    ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
  });
}

TEST_CASE("host launch: ThreadSanitizer reports a race between lanes, and nothing else", "[host_launch]") {
  is_reported("broken: shared memory read without a barrier");
  run_once(ucclep_rotate);
}
TEST_CASE("broken: shared memory read without a barrier", "[.broken]") {
  run_once(ucclep_rotate_unordered);
}
#elif !defined(UCCLEP_ASAN)
TEST_CASE("host launch: a kernel under ThreadSanitizer needs a library that is, too", "[host_launch]") {
  run_ranks(1, [](Rank& rank) {
    const Comm comm(rank);
    const RotateArgs args{allocate<uint32_t>(comm, all), 1};
    executor::HostKernel kernel = ucclep_rotate;
    kernel.under_tsan = true;
    refused(launch_on_cpu(comm, kernel, 1, threads, 1024, &args, sizeof args, nullptr), ucclEpInvalidUsage,
            "ucclEpHostLaunch", {"kernel rotate", "-fsanitize=thread", "sanitized-library"});
  });
}
#endif

// The message of the communicator's fatal error.
std::string fault_of(Rank& rank, const std::function<ucclEpResult_t(ucclEpComm_t)>& launch) {
  const Comm comm(rank);
  ok(launch(comm), "ucclEpHostLaunch");
  answered(ucclEpStreamSynchronize(comm, nullptr), ucclEpInternalError, comm, "ucclEpStreamSynchronize");
  const RotateArgs args{nullptr, 1};
  refused(launch_rotate(comm, args, nullptr), ucclEpInternalError, "ucclEpHostLaunch");
  return ucclEpGetLastError(comm);
}

TEST_CASE("host launch: what a lane does wrong is a fatal error that names it", "[host_launch]") {
  run_ranks(1, [](Rank& rank) {
    const std::string message = fault_of(rank, [](ucclEpComm_t comm) {
      return ucclEpHostLaunch(comm, ucclep_barrier_left_out, 1, threads, 0, NoArgs{}, nullptr);
    });
    for (const char* words : {"kernel barrier_left_out", "block 0 of 1", "sync_block", "warp 0 lane 1"}) {
      require(message.find(words) != std::string::npos, message + ": expected " + words);
    }
  });
}

TEST_CASE("host launch: lockstep finds a lane that waits for its own warp", "[host_launch]") {
  const Environment mode("UCCLEP_HOST_MODE", "lockstep"), watchdog("UCCLEP_HOST_WATCHDOG_MS", "300");
  run_ranks(1, [](Rank& rank) {
    const std::string message = fault_of(rank, [](ucclEpComm_t comm) {
      const WordArgs args{allocate<uint32_t>(comm, 1)};
      return ucclEpHostLaunch(comm, ucclep_waits_for_own_warp, 1, threads, 0, args, nullptr);
    });
    for (const char* words : {"kernel waits_for_own_warp", "warp 0 lane 0", "lockstep"}) {
      require(message.find(words) != std::string::npos, message + ": expected " + words);
    }
  });
}

}  // namespace
}  // namespace ucclep::test
