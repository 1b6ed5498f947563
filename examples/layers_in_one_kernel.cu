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
  unsigned local, slab;  // experts of this rank, rows of a slab
};

UCCLEP_HD constexpr float factor(unsigned expert) {
  return 1 + static_cast<float>(expert) / E;
}

// One layer. Rows go back as soon as a block has computed them, so no block waits for all others before the end.
UCCLEP_FN bool layer(const Layers& args) {
  const ucclep::TopkRouting<int32_t> routing{args.experts, args.weights, T};
  const auto there = ucclep::ll::dispatch_begin(args.handle, args.shape, routing);
  const auto back = ucclep::ll::combine_begin(args.handle, args.shape, there);
  for (unsigned token = ucclep::grid_warp(); token < T; token += ucclep::grid_warps()) {
    ucclep::ll::dispatch_send(ucclep::warp{}, there, token, args.tokens + token * H, nullptr);
  }
  ucclep::ll::dispatch_end(ucclep::block{}, there);
  for (unsigned expert = 0; expert < args.local; ++expert) {
    unsigned rows;
    if (!ucclep::ll::dispatch_rows(ucclep::block{}, there, expert, rows)) return false;
    const unsigned begin = expert * args.slab, end = begin + rows;
    for (unsigned first = begin + ucclep::block_id() * M; first < end; first += ucclep::grid_size() * M) {
      const unsigned last = first + M < end ? first + M : end;
      if (!ucclep::ll::dispatch_recv(ucclep::block{}, there, {args.rows}, first, last)) return false;
      for (unsigned i = first * H + ucclep::thread_id(); i < last * H; i += ucclep::block_size()) {
        args.rows[i] *= factor(args.handle.group.rank * args.local + expert);
      }
      for (unsigned row = first; row < last; ++row) {
        ucclep::ll::combine_send(ucclep::block{}, back, row, args.rows + row * H);
      }
    }
  }
  ucclep::ll::combine_end(ucclep::block{}, back);
  for (unsigned first = ucclep::block_id() * M; first < T; first += ucclep::grid_size() * M) {
    if (!ucclep::ll::combine_recv(ucclep::block{}, back, {args.tokens}, first, first + M)) return false;
  }
  return ucclep::await_end(ucclep::block{}, back, ucclep::Kind::combine);  // all results: the next layer's tokens
}

UCCLEP_KERNEL(all_layers, Layers) {
  for (int i = 0; i < layers; ++i) {
    if (!layer(args)) return;
  }
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  using example::data, example::make_tensor;
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpHandle_t handle = example::make_handle(comm, shape);
  const ucclEpTensor_t tokens = make_tensor(comm, ucclEpFloat32, {T, H}), ids = make_tensor(comm, ucclEpInt32, {T, K}),
                       weights = make_tensor(comm, ucclEpFloat32, {T, K}),
                       rows = make_tensor(comm, ucclEpFloat32, {E / ranks, ranks * T, H});
  const auto chosen = [rank](int token, int k) { return (rank * 3 + token * 5 + k * k * 7 + k) % E; };
  const auto first = [rank](int i) { return static_cast<float>(rank + i % 251 + 1); };
  for (int i = 0; i < T * H; ++i) data<float>(tokens)[i] = first(i);
  for (int i = 0; i < T * K; ++i) data<int32_t>(ids)[i] = chosen(i / K, i % K), data<float>(weights)[i] = 1.0f / K;
  Layers args{};
  args.shape = {H, ucclEpFloat32}, args.shape.top_k = K, args.local = E / ranks, args.slab = ranks * T;
  args.tokens = data<float>(tokens), args.rows = data<float>(rows), args.experts = data<int32_t>(ids);
  args.weights = data<float>(weights);
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
