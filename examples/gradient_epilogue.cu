// SPDX-License-Identifier: Apache-2.0
// The backward pass of a MoE layer in HT: the kernel that computes the gradients of the experts' inputs sends each row
// home as it is done, from a few rows of scratch. There is no tensor of gradients by expert.
//   nvcc -std=c++20 -arch=sm_90a gradient_epilogue.cu -lucclep
#include <ucclep/device.hpp>

#include "example.hpp"

using example::data;

constexpr int E = 16, K = 4, T = 96, H = 512;  // experts, experts of a token, tokens of a rank, elements of a row
constexpr int blocks = 8, threads = 256;

// Expert e multiplies a row by this; so do its gradients.
UCCLEP_HD constexpr float factor(int expert) {
  return 1 + static_cast<float>(expert) / 8;
}

struct Backward {
  ucclEpDeviceHandle handle;
  ucclep::RowShape shape;
  const float *gradients, *weights;  // [rows, H] of the experts' outputs, [rows, K]
  const int* experts;                // [rows, K], -1: not of this rank
  float* scratch;                    // [warps, H]
  unsigned rows;                     // that there may be; what dispatch has not filled goes nowhere
};

UCCLEP_KERNEL(multiply_and_send, Backward) {
  const auto op = ucclep::ht::combine_begin(args.handle, args.shape);
  float* mine = args.scratch + ucclep::grid_warp() * H;
  for (unsigned row = ucclep::grid_warp(); row < args.rows; row += ucclep::grid_warps()) {
    for (unsigned i = ucclep::lane_id(); i < H; i += ucclep::wave_size) {
      float sum = 0;
      for (int k = 0; k < K; ++k) {
        const int expert = args.experts[row * K + k];
        if (expert >= 0) sum += args.weights[row * K + k] * factor(expert) * args.gradients[row * H + i];
      }
      mine[i] = sum;
    }
    ucclep::sync_warp();
    ucclep::ht::combine_send(ucclep::warp{}, op, row, mine);  // when it returns the scratch is free
  }
  ucclep::ht::combine_end(ucclep::block{}, op);
}

int chosen(int rank, int token, int k) {
  return (rank + token + 5 * k) % E;
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpHandle_t handle =
      example::make_handle(comm, shape, UCCLEP_MODE_HT, UCCLEP_LAYOUT_FLAT, UCCLEP_EXPERT_IDS_GLOBAL);

  const int most = ranks * T;
  const auto floats = [&](int rows, int width) { return example::make_tensor(comm, ucclEpFloat32, {rows, width}); };
  const auto ints = [&](int rows) { return example::make_tensor(comm, ucclEpInt32, {rows, K}); };
  const ucclEpTensor_t ids = ints(T), weights = floats(T, K), gradients = floats(T, H), result = floats(T, H),
                       received = floats(most, H), received_ids = ints(most), received_weights = floats(most, K),
                       scratch = floats(blocks * threads / 32, H);
  for (int i = 0; i < T * K; ++i) data<int>(ids)[i] = chosen(rank, i / K, i % K);
  for (int i = 0; i < T * K; ++i) data<float>(weights)[i] = 1.0f / static_cast<float>(2 << i % K);
  for (int i = 0; i < T * H; ++i) data<float>(gradients)[i] = static_cast<float>((rank * 31 + i) % 127);

  ucclEpDispatchInputs_t forward = UCCLEP_DISPATCH_INPUTS_INIT, backward = UCCLEP_DISPATCH_INPUTS_INIT;
  forward.topk_idx = &ids, forward.topk_weights = &weights, forward.tokens = backward.tokens = &gradients;
  ucclEpDispatchOutputs_t routed = UCCLEP_DISPATCH_OUTPUTS_INIT, back = UCCLEP_DISPATCH_OUTPUTS_INIT;
  routed.tokens = back.tokens = &received, routed.topk_idx = &received_ids, routed.topk_weights = &received_weights;
  ucclEpDispatchConfig_t dispatch_pass = UCCLEP_DISPATCH_CONFIG_INIT;
  ucclEpCombineConfig_t combine_pass = UCCLEP_COMBINE_CONFIG_INIT;
  dispatch_pass.pass = combine_pass.pass = UCCLEP_PASS_BACKWARD;
  ucclEpCombineInputs_t nothing = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t combined = UCCLEP_COMBINE_OUTPUTS_INIT;
  combined.tokens = &result;
  Backward kernel{};
  kernel.shape = {H, ucclEpFloat32}, kernel.shape.top_k = K, kernel.shape.pass = UCCLEP_PASS_BACKWARD;
  kernel.gradients = data<float>(received), kernel.weights = data<float>(received_weights);
  kernel.experts = data<int>(received_ids), kernel.scratch = data<float>(scratch), kernel.rows = most;
  CHECK(ucclEpHandleGetDevice(handle, &kernel.handle));
  for (int step = 0; step < 20; ++step) {
    CHECK(ucclEpDispatch(handle, &forward, &routed, nullptr, nullptr));
    // The experts, combine and the loss would be here, and have rows of their own.
    CHECK(ucclEpDispatch(handle, &backward, &back, &dispatch_pass, nullptr));
    LAUNCH(comm, multiply_and_send, blocks, threads, kernel);
    CHECK(ucclEpCompleteCombine(handle, &nothing, &combined, &combine_pass, nullptr));
  }
  CHECK(ucclEpStreamSynchronize(comm, nullptr));
  const auto expected = [&](int i) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += data<float>(weights)[k] * factor(chosen(rank, i / H, k));
    return sum * data<float>(gradients)[i];
  };
  return example::compare(rank, data<float>(result), expected, T * H);
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
