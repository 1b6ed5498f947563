// SPDX-License-Identifier: Apache-2.0
// Four MoE layers in one launch: tokens leave, tiles of rows are computed when they are there, results go home.
//   nvcc -std=c++20 -arch=sm_90a layers_in_one_kernel.cu -lucclep
#include <ucclep/device.hpp>

#include "example.hpp"

constexpr int E = 32, K = 4, T = 40, H = 512, M = 8, layers = 4;  // M: rows of a tile

struct Layers {
  ucclEpDeviceHandle handle;
  ucclep::RowShape shape;
  float *tokens, *rows;  // [T, H], in place; [local, slab, H]
  const int32_t* experts;
  const float* weights;
  ucclep::GridBarrier* barrier;
  unsigned local, slab;  // experts of this rank, rows of a slab
};

UCCLEP_HD constexpr float factor(unsigned expert) {
  return 1 + static_cast<float>(expert) / E;
}

// Block verb, between two operations: all blocks have come here, and all that they did is done.
UCCLEP_FN bool all_blocks(const Layers& args) {
  const auto wait = ucclep::begin_wait(args.handle.group.timeout_ns, args.handle.group.abort_word);
  return ucclep::grid_sync(args.barrier, wait);
}

UCCLEP_FN bool to_the_experts(const Layers& args) {
  const auto op = ucclep::ll::dispatch_begin(args.handle, args.shape);
  for (unsigned token = ucclep::grid_warp(); token < T; token += ucclep::grid_warps()) {
    ucclep::ll::dispatch_send(ucclep::warp{}, op, token, args.tokens + token * H, nullptr, args.experts + token * K,
                              args.weights + token * K);
  }
  ucclep::ll::dispatch_end(ucclep::block{}, op, T);
  for (unsigned expert = 0; expert < args.local; ++expert) {
    unsigned rows;
    if (!ucclep::ll::dispatch_rows(ucclep::block{}, op, expert, rows)) return false;
    const unsigned begin = expert * args.slab, end = begin + rows;
    for (unsigned first = begin + ucclep::block_id() * M; first < end; first += ucclep::grid_size() * M) {
      const unsigned last = first + M < end ? first + M : end;
      if (!ucclep::ll::dispatch_recv(ucclep::block{}, op, {args.rows}, first, last)) return false;
      for (unsigned i = first * H + ucclep::thread_id(); i < last * H; i += ucclep::block_size()) {
        args.rows[i] *= factor(args.handle.group.rank * args.local + expert);
      }
    }
  }
  return all_blocks(args);
}

UCCLEP_FN bool back_home(const Layers& args) {
  const auto op = ucclep::ll::combine_begin(args.handle, args.shape);
  for (unsigned expert = 0; expert < args.local; ++expert) {
    const unsigned begin = expert * args.slab, end = begin + ucclep::ll::combine_rows(op, expert);
    for (unsigned row = begin + ucclep::grid_warp(); row < end; row += ucclep::grid_warps()) {
      ucclep::ll::combine_send(ucclep::warp{}, op, row, args.rows + row * H);
    }
  }
  ucclep::ll::combine_end(ucclep::block{}, op);
  for (unsigned first = ucclep::block_id() * M; first < T; first += ucclep::grid_size() * M) {
    if (!ucclep::ll::combine_recv(ucclep::block{}, op, {args.tokens}, first, first + M)) return false;
  }
  return all_blocks(args);
}

UCCLEP_KERNEL(all_layers, Layers) {
  for (int layer = 0; layer < layers; ++layer) {
    if (!to_the_experts(args) || !back_home(args)) return;
  }
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  using example::data, example::make_tensor;
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpHandle_t handle = example::make_handle(comm, shape);
  const ucclEpTensor_t tokens = make_tensor(comm, ucclEpFloat32, {T, H}), ids = make_tensor(comm, ucclEpInt32, {T, K}),
                       weights = make_tensor(comm, ucclEpFloat32, {T, K}), words = make_tensor(comm, ucclEpInt32, {2}),
                       rows = make_tensor(comm, ucclEpFloat32, {E / ranks, ranks * T, H});
  const auto chosen = [rank](int token, int k) { return (rank * 3 + token * 5 + k * k * 7 + k) % E; };
  const auto first = [rank](int i) { return static_cast<float>(rank + i % 251 + 1); };
  for (int i = 0; i < T * H; ++i) data<float>(tokens)[i] = first(i);
  for (int i = 0; i < T * K; ++i) data<int32_t>(ids)[i] = chosen(i / K, i % K), data<float>(weights)[i] = 1.0f / K;
  Layers args{};
  args.shape = {H, ucclEpFloat32}, args.shape.top_k = K, args.local = E / ranks, args.slab = ranks * T;
  args.tokens = data<float>(tokens), args.rows = data<float>(rows), args.experts = data<int32_t>(ids);
  args.weights = data<float>(weights), args.barrier = data<ucclep::GridBarrier>(words);
  CHECK(ucclEpHandleGetDevice(handle, &args.handle));
  LAUNCH(comm, all_layers, 8, 256, args);
  CHECK(ucclEpStreamSynchronize(comm, nullptr));
  const auto expected = [&](int i) {
    double gain = 0;
    for (int k = 0; k < K; ++k) gain += double{factor(chosen(i / H, k))} / K;
    return std::pow(gain, layers) * first(i);
  };
  return example::compare(rank, data<float>(tokens), expected, T * H);
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
