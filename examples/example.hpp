// SPDX-License-Identifier: Apache-2.0
// What the examples with kernels share: a process or a thread for each rank, tensors in memory that host and device can
// access, a launch on either, and checks that end the process with an error message.
#pragma once
#include <sys/wait.h>
#include <ucclep/ucclep.h>
#include <unistd.h>
#include <ucclep/host_launch.hpp>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <thread>
#include <utility>
#include <vector>

namespace example {

inline void check(ucclEpResult_t result, const char* call) {
  if (result == ucclEpSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, ucclEpGetLastError(nullptr));
  std::exit(1);
}
#define CHECK(call) ::example::check(call, #call)

#if defined(CUDART_VERSION)  // nvcc
inline void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(result));
  std::exit(1);
}
// A GPU of its own, or with --share-gpus number rank modulo the GPUs. Every rank comes to the same answer, and one says
// it.
inline void use_device(int rank, int ranks, bool share_gpus) {
  int gpus = 0;
  CHECK(cudaGetDeviceCount(&gpus));
  if (ranks > gpus && !share_gpus) {
    if (rank == 0) {
      std::fprintf(stderr, "%d ranks, but %d GPUs: each rank needs one; use --share-gpus to let ranks share them\n",
                   ranks, gpus);
    }
    std::exit(2);
  }
  CHECK(cudaSetDevice(rank % gpus));
  CHECK(cudaFree(nullptr));  // makes the context that the library uses
}
#define LAUNCH(comm, kernel, blocks, threads, args) \
  do {                                              \
    ucclep_##kernel<<<blocks, threads>>>(args);     \
    CHECK(cudaGetLastError());                      \
  } while (false)
#else
inline void use_device(int, int, bool) {}
#if defined(UCCLEP_ON_CPU)
#define LAUNCH(comm, kernel, blocks, threads, args) \
  CHECK(ucclEpHostLaunch(comm, ucclep_##kernel, blocks, threads, 0, args, nullptr))
#else  // AMD's compiler, which our tests ask for the kernels alone
#define LAUNCH(comm, kernel, blocks, threads, args) CHECK(ucclEpNotSupported)
#endif
#endif

// Zeroed.
inline ucclEpTensor_t make_tensor(ucclEpComm_t comm, ucclEpDataType_t dtype, std::initializer_list<int64_t> sizes) {
  ucclEpTensor_t tensor = UCCLEP_TENSOR_INIT;
  tensor.dtype = dtype;
  size_t bytes = dtype == ucclEpFloat8e4m3 ? 1 : dtype == ucclEpInt64 ? 8 : 4;  // of an element
  for (int64_t size : sizes) {
    tensor.sizes[tensor.ndim++] = size;
    bytes *= static_cast<size_t>(size);
  }
  CHECK(ucclEpMemAllocHost(comm, &tensor.data, bytes));
  return tensor;
}
template <class T>
T* data(const ucclEpTensor_t& tensor) {
  return static_cast<T*>(tensor.data);
}

// A handle of a group of that shape.
inline ucclEpHandle_t make_handle(ucclEpComm_t comm, const ucclEpGroupConfig_t& shape, int mode = UCCLEP_MODE_LL,
                                  int layout = UCCLEP_LAYOUT_EXPERT_MAJOR, int ids = UCCLEP_EXPERT_IDS_LOCAL,
                                  int tile_rows = 0) {
  ucclEpGroup_t group;
  CHECK(ucclEpGroupCreate(&group, comm, &shape));
  ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
  config.mode = mode, config.layout = layout, config.expert_ids = ids, config.tile_rows = tile_rows;
  ucclEpHandle_t handle;
  CHECK(ucclEpHandleCreate(&handle, group, &config));
  return handle;
}

inline int report(int rank, int wrong, int count) {
  std::printf("rank %d: %d of %d values are wrong\n", rank, wrong, count);
  return wrong != 0 || count == 0;
}

// Compares with what was expected, up to rounding, and says what came out of it.
inline int compare(int rank, const float* got, const std::function<double(int)>& expected, int count) {
  int wrong = 0;
  for (int i = 0; i < count; ++i) wrong += std::abs(got[i] - expected(i)) > 1e-5 * std::abs(expected(i)) + 1e-6;
  return report(rank, wrong, count);
}

// Waits for the processes of all ranks, and ends the others when one has failed: they would wait for it. 1: one has.
inline int wait_for(std::vector<pid_t> ranks) {
  int failed = 0, status = 0;
  for (pid_t ended = wait(&status); ended > 0; ended = wait(&status)) {
    failed |= status != 0;
    for (pid_t& rank : ranks) {
      if (rank == ended) rank = 0;
      if (failed && rank > 0) kill(rank, SIGTERM);
    }
  }
  return failed;
}

// run(comm, rank, ranks) in a process for each rank, on GPUs the first ones. Returns 1 if one failed. The arguments are
// [RANKS (2)] [--share-gpus] [--threads]: ranks that share a GPU run beside each other under NVIDIA's MPS, and without
// it take turns. With --threads ranks are threads of one process, as ThreadSanitizer wants them: it leaves forked ones
// alone.
inline int run_ranks(int argc, char** argv, int (*run)(ucclEpComm_t, int, int)) {
  int ranks = 2;
  bool share_gpus = false, threads = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--share-gpus") == 0) {
      share_gpus = true;
    } else if (std::strcmp(argv[i], "--threads") == 0) {
      threads = true;
    } else if ((ranks = std::atoi(argv[i])) < 1) {
      std::fprintf(stderr, "%s: expected [RANKS] [--share-gpus] [--threads], not %s\n", argv[0], argv[i]);
      return 2;
    }
  }
  ucclEpUniqueId id;
  CHECK(ucclEpGetUniqueId(&id));
  const auto run_rank = [=](int rank) {
    use_device(rank, ranks, share_gpus);
    ucclEpComm_t comm;
    CHECK(ucclEpCommInitRank(&comm, ranks, id, rank, nullptr));
    const int failed = run(comm, rank, ranks);
    CHECK(ucclEpCommDestroy(comm));  // with all that was made from it
    return failed;
  };
  if (threads) {
    std::atomic<int> failed = 0;
    std::vector<std::thread> all;
    for (int rank = 0; rank < ranks; ++rank) all.emplace_back([&, rank] { failed |= run_rank(rank); });
    for (std::thread& thread : all) thread.join();
    return failed;
  }
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back(fork());
    if (processes.back() == 0) return run_rank(rank);
  }
  return wait_for(std::move(processes));
}

}  // namespace example
