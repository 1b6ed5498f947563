// SPDX-License-Identifier: Apache-2.0
// A router fused with its dispatch: the warp that has found a token's best experts sends the token to them at once.
//   nvcc -std=c++20 -arch=sm_90a fused_topk_dispatch.cu -lucclep
#include <ucclep/device/ll_dispatch.hpp>

#include "example.hpp"

constexpr int E = 64, K = 4, T = 48, H = 1024;  // experts, experts of a token, tokens of a rank, elements of a row

struct Router {
  ucclEpDeviceHandle handle;
  ucclep::RowShape shape;
  const float *rows, *scores;
};

// Warp verb: the K largest of E scores, and their part of the sum. All lanes get all of them.
UCCLEP_FN void top_k(const float* scores, int32_t (&experts)[K], float (&weights)[K]) {
  uint64_t below = ~uint64_t{0};  // keys that have been found are not below it
  float sum = 0;
  for (int k = 0; k < K; ++k) {
    uint64_t best = 0;
    for (unsigned e = ucclep::lane_id(); e < E; e += ucclep::wave_size) {
      const uint64_t key =
          uint64_t{__builtin_bit_cast(uint32_t, scores[e])} << 32 | (E - e);  // equal scores: the lower expert
      if (key < below && key > best) best = key;
    }
    below = ucclep::reduce_max(best);
    experts[k] = E - static_cast<int32_t>(below & 0xffffffff);
    weights[k] = scores[experts[k]];
    sum += weights[k];
  }
  for (float& weight : weights) weight /= sum;
}

UCCLEP_KERNEL(route_and_send, Router) {
  const auto op = ucclep::ll::dispatch_begin(args.handle, args.shape);
  for (unsigned token = ucclep::grid_warp(); token < T; token += ucclep::grid_warps()) {
    int32_t experts[K];
    float weights[K];
    top_k(args.scores + token * E, experts, weights);
    ucclep::ll::dispatch_send(ucclep::warp{}, op, token, args.rows + token * H, nullptr, experts, weights);
  }
  ucclep::ll::dispatch_end(ucclep::block{}, op, T);
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpHandle_t handle = example::make_handle(comm, shape);

  const ucclEpTensor_t tokens = example::make_tensor(comm, ucclEpFloat32, {T, H}),
                       scores = example::make_tensor(comm, ucclEpFloat32, {T, E}),
                       received = example::make_tensor(comm, ucclEpFloat32, {E / ranks, ranks * T, H}),
                       result = example::make_tensor(comm, ucclEpFloat32, {T, H});
  const float *rows = example::data<float>(tokens), *of_experts = example::data<float>(scores);
  for (int i = 0; i < T * H; ++i) example::data<float>(tokens)[i] = static_cast<float>(rank * 1000 + i % 997);
  for (int i = 0; i < T * E; ++i) example::data<float>(scores)[i] = static_cast<float>((i * 7919 + rank) % 101 + 1);

  ucclEpDispatchOutputs_t outputs = UCCLEP_DISPATCH_OUTPUTS_INIT;
  outputs.tokens = &received;
  ucclEpCombineInputs_t partial = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t combined = UCCLEP_COMBINE_OUTPUTS_INIT;
  partial.tokens = &received, combined.tokens = &result;
  Router router{{}, {H, ucclEpFloat32}, rows, of_experts};
  router.shape.top_k = K;
  CHECK(ucclEpHandleGetDevice(handle, &router.handle));
  for (int round = 0; round < 20; ++round) {
    LAUNCH(comm, route_and_send, 8, 256, router);
    CHECK(ucclEpCompleteDispatch(handle, &outputs, nullptr, nullptr));
    // The experts would change the rows here. They leave them as they are, so that the sum gives each token back.
    CHECK(ucclEpCombine(handle, &partial, &combined, nullptr, nullptr));
  }
  CHECK(ucclEpStreamSynchronize(comm, nullptr));
  const auto sent = [rows](int i) { return rows[i]; };
  return example::compare(rank, example::data<float>(result), sent, T * H);
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
