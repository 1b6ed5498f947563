// SPDX-License-Identifier: Apache-2.0
// An MoE layer in one launch, tile by tile: a warp routes a token and sends it at once, experts work on each tile of
// rows as soon as it is whole, and results go home while other tiles are still coming. Nobody waits for counts.
//   nvcc -std=c++20 -arch=sm_90a tiles_in_one_kernel.cu -lucclep
#include <ucclep/device/tiles.hpp>

#include "example.hpp"

constexpr int E = 32, K = 4, T = 96, H = 512, M = 16;  // M: rows of a tile

struct Layer {
  ucclEpDeviceHandle handle;
  ucclep::TileShapes shapes;
  const float* tokens;  // [T, H]
  float* results;       // [T, H]
  unsigned local;       // experts of this rank
};

UCCLEP_HD constexpr int chosen(int rank, int token, int k) {
  return (rank * 3 + token * 5 + k * k * 7 + k) % E;
}
UCCLEP_HD constexpr float factor(unsigned expert) {
  return 1 + static_cast<float>(expert) / E;
}

// What stands for a router: each lane could find an expert of its own.
UCCLEP_FN void route(int rank, int token, int32_t* experts, float* weights) {
  for (int k = 0; k < K; ++k) {
    experts[k] = chosen(rank, token, k);
    weights[k] = 1.0f / K;
  }
}

// What stands for an expert: a warp scales a row, in place.
UCCLEP_FN void compute(float* row, float by) {
  for (unsigned i = ucclep::lane_id(); i < H; i += ucclep::wave_size) row[i] *= by;
  ucclep::sync_warp();
}

UCCLEP_FN void experts(const ucclep::tiles::OpenTiles& op, const Layer& args) {
  ucclep::tiles::Tile tile;
  while (ucclep::tiles::next(ucclep::warp{}, op, tile) == ucclep::tiles::Next::tile) {
    for (unsigned i = 0; i < tile.rows; ++i) {
      auto* const row = static_cast<float*>(const_cast<void*>(ucclep::tiles::row(op, tile, i)));
      compute(row, factor(args.handle.group.rank * args.local + tile.expert));
      ucclep::tiles::send_back(ucclep::warp{}, op, tile, i, row);
    }
  }
}

// The first warps of the grid serve the ranks' rows, one each. All others send tokens, and then work for the experts.
UCCLEP_KERNEL(layer, Layer) {
  const unsigned ranks = args.handle.group.shape.ranks, warp = ucclep::grid_warp(), warps = ucclep::grid_warps();
  ucclep::TileShapes shapes = args.shapes;
  shapes.closers = warps - ranks;  // all that send
  const auto op = ucclep::tiles::begin(args.handle, shapes);
  if (warp < ranks) ucclep::tiles::serve(ucclep::warp{}, op, warp);
  for (unsigned token = warp - ranks; warp >= ranks && token < T; token += warps - ranks) {
    int32_t chosen_experts[K];
    float weights[K];
    route(args.handle.group.rank, token, chosen_experts, weights);
    ucclep::tiles::send(ucclep::warp{}, op, token, args.tokens + token * H, nullptr, chosen_experts, weights);
  }
  if (warp >= ranks) ucclep::tiles::close(ucclep::warp{}, op);
  if (warp >= ranks) experts(op, args);
  ucclep::tiles::close_back(ucclep::block{}, op);
  for (unsigned token = warp; token < T; token += warps) {
    if (!ucclep::tiles::results(ucclep::warp{}, op, {args.results}, token, token + 1)) return;
  }
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  using example::data, example::make_tensor;
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpHandle_t handle =
      example::make_handle(comm, shape, UCCLEP_MODE_LL, UCCLEP_LAYOUT_TILES, UCCLEP_EXPERT_IDS_LOCAL, M);
  const int slab = (ranks * T + M - 1) / M * M;
  const ucclEpTensor_t tokens = make_tensor(comm, ucclEpFloat32, {T, H}),
                       results = make_tensor(comm, ucclEpFloat32, {T, H}),
                       rows = make_tensor(comm, ucclEpFloat32, {E / ranks, slab, H});
  const auto first = [rank](int i) { return static_cast<float>(rank + i % 251 + 1); };
  for (int i = 0; i < T * H; ++i) data<float>(tokens)[i] = first(i);
  Layer args{};
  args.shapes.out = {H, ucclEpFloat32, 0, K, ucclEpNoDataType, true};  // with weights
  args.shapes.back = {H, ucclEpFloat32, 0, K};
  args.shapes.rows = args.shapes.back_rows = rows.data;  // results stand where the rows were
  args.tokens = data<float>(tokens), args.results = data<float>(results), args.local = E / ranks;
  CHECK(ucclEpHandleGetDevice(handle, &args.handle));
  LAUNCH(comm, layer, 8, 128, args);
  CHECK(ucclEpStreamSynchronize(comm, nullptr));
  const auto expected = [&](int i) {
    double gain = 0;
    for (int k = 0; k < K; ++k) gain += double{factor(chosen(rank, i / H, k))} / K;
    return gain * first(i);
  };
  return example::compare(rank, data<float>(results), expected, T * H);
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
