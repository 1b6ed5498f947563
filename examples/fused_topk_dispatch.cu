// SPDX-License-Identifier: Apache-2.0
// A router fused with its dispatch: the warp that has found a token's best experts sends the token to them at once.
//   nvcc -std=c++20 -arch=sm_90a -fmad=false --expt-relaxed-constexpr fused_topk_dispatch.cu -lucclep
#include <ucclep/device.hpp>

#include "example.hpp"

constexpr int E = 64, K = 4, T = 48, H = 1024;  // experts, experts of a token, tokens of a rank, elements of a row

// Warp verb: the K largest of E logits, and their softmax. All lanes get all of them.
__device__ void top_k(const float* logits, int32_t (&experts)[K], float (&weights)[K]) {
  uint64_t below = ~0ull;  // keys that have been found are not below it
  float sum = 0;
  for (int k = 0; k < K; ++k) {
    uint64_t best = 0;
    for (int e = ucclep::lane_id(); e < E; e += ucclep::wave_size) {
      const uint32_t bits = __float_as_uint(logits[e]), ordered = bits & 1u << 31 ? ~bits : bits | 1u << 31;
      const uint64_t key = uint64_t{ordered} << 32 | (E - e);  // equal logits: the lower expert
      if (key < below && key > best) best = key;
    }
    below = ucclep::reduce_max(best);
    experts[k] = E - static_cast<int32_t>(below & 0xffffffff);
    weights[k] = __expf(logits[experts[k]] - logits[experts[0]]);
    sum += weights[k];
  }
  for (float& weight : weights) weight /= sum;
}

__global__ void route_and_send(const ucclEpDeviceHandle handle, const ucclep::RowShape shape, const float* rows,
                               const float* logits) {
  const auto op = ucclep::ll::dispatch_begin(handle, shape);
  for (int token = ucclep::grid_warp(); token < T; token += ucclep::grid_warps()) {
    int32_t experts[K];
    float weights[K];
    top_k(logits + token * E, experts, weights);
    ucclep::ll::dispatch_send(ucclep::warp{}, op, token, rows + token * H, nullptr, experts, weights);
  }
  ucclep::ll::dispatch_end(ucclep::block{}, op, T);
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpHandle_t handle = example::make_handle(comm, shape);
  ucclEpDeviceHandle on_device;
  CHECK(ucclEpHandleGetDevice(handle, &on_device));

  const ucclEpTensor_t tokens = example::make_tensor(comm, ucclEpFloat32, {T, H}),
                       logits = example::make_tensor(comm, ucclEpFloat32, {T, E}),
                       received = example::make_tensor(comm, ucclEpFloat32, {E / ranks, ranks * T, H}),
                       result = example::make_tensor(comm, ucclEpFloat32, {T, H});
  for (int i = 0; i < T * H; ++i) example::data<float>(tokens)[i] = static_cast<float>(rank * 1000 + i % 997);
  for (int i = 0; i < T * E; ++i) example::data<float>(logits)[i] = static_cast<float>((i * 7919 + rank) % 101) / 16;

  ucclEpDispatchOutputs_t outputs = UCCLEP_DISPATCH_OUTPUTS_INIT;
  outputs.tokens = &received;
  ucclEpCombineInputs_t partial = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t combined = UCCLEP_COMBINE_OUTPUTS_INIT;
  partial.tokens = &received, combined.tokens = &result;
  for (int round = 0; round < 20; ++round) {
    ucclep::RowShape row{H, ucclEpFloat32};
    row.top_k = K;
    route_and_send<<<8, 256>>>(on_device, row, example::data<float>(tokens), example::data<float>(logits));
    CHECK(cudaGetLastError());
    CHECK(ucclEpCompleteDispatch(handle, &outputs, nullptr, nullptr));
    // The experts would change the rows here. They leave them as they are, so that the sum gives each token back.
    CHECK(ucclEpCombine(handle, &partial, &combined, nullptr, nullptr));
  }
  CHECK(ucclEpStreamSynchronize(comm, nullptr));
  const float* sent = example::data<float>(tokens);
  const auto expected = [&](int i) { return sent[i]; };
  return example::compare(rank, example::data<float>(result), expected, T * H);
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
