// SPDX-License-Identifier: Apache-2.0
// A MoE layer whose experts send their rows home from the epilogue of their GEMM (gemm_epilogue.cu).
//   g++ -std=c++20 gemm_epilogue.cpp gemm_epilogue.o -lucclep -lcudart
#include "gemm_epilogue.hpp"

#include "example.hpp"

using example::data;
using example::make_tensor;
using namespace gemm;

// Expert e multiplies a row by 1 + e / 8 and adds element 0 to element 1.
float factor(int expert) {
  return 1 + static_cast<float>(expert) / 8;
}
int chosen(int rank, int token, int k) {
  return (rank + token + 5 * k) % E;
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  const int local = E / ranks, slab = ranks * T;
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpHandle_t handle = example::make_handle(comm, shape);

  const ucclEpTensor_t ids = make_tensor(comm, ucclEpInt32, {T, K}), weights = make_tensor(comm, ucclEpFloat32, {T, K}),
                       tokens = make_tensor(comm, ucclEpFloat32, {T, H}),
                       received = make_tensor(comm, ucclEpFloat32, {local, slab, H}),
                       gemm_weights = make_tensor(comm, ucclEpFloat32, {local, H, H}),
                       out = make_tensor(comm, ucclEpFloat32, {local, slab, H}),
                       counts = make_tensor(comm, ucclEpInt32, {local}),
                       result = make_tensor(comm, ucclEpFloat32, {T, H});
  for (int i = 0; i < T * K; ++i) data<int>(ids)[i] = chosen(rank, i / K, i % K);
  for (int i = 0; i < T * K; ++i) data<float>(weights)[i] = 1.0f / static_cast<float>(2 << i % K);
  for (int i = 0; i < T * H; ++i) data<float>(tokens)[i] = static_cast<float>((rank * 31 + i) % 127);
  for (int e = 0; e < local; ++e) {
    float* matrix = data<float>(gemm_weights) + e * H * H;
    for (int i = 0; i < H; ++i) matrix[i * H + i] = factor(rank * local + e);
    matrix[1] = 1;
  }

  ucclEpCounters_t counters = UCCLEP_COUNTERS_INIT;
  counters.tokens_per_expert = &counts;
  ucclEpDispatchInputs_t sent = UCCLEP_DISPATCH_INPUTS_INIT;
  ucclEpDispatchOutputs_t outputs = UCCLEP_DISPATCH_OUTPUTS_INIT;
  sent.tokens = &tokens, sent.topk_idx = &ids, sent.topk_weights = &weights;
  outputs.tokens = &received, outputs.counters = &counters;
  ucclEpCombineInputs_t no_bias = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t combined = UCCLEP_COMBINE_OUTPUTS_INIT;
  combined.tokens = &result;
  const Experts experts{
      data<float>(received), data<float>(gemm_weights), data<float>(out), data<int>(counts), local, slab};
  for (int round = 0; round < 20; ++round) {
    CHECK(ucclEpDispatch(handle, &sent, &outputs, nullptr, nullptr));
    CHECK(launch(handle, experts, nullptr));
    CHECK(ucclEpCompleteCombine(handle, &no_bias, &combined, nullptr, nullptr));
  }
  CHECK(ucclEpStreamSynchronize(comm, nullptr));

  const auto expected = [&](int i) {
    const int token = i / H;
    const float x = data<float>(tokens)[i], first = data<float>(tokens)[token * H];
    double sum = 0;
    for (int k = 0; k < K; ++k) {
      const double y = x * factor(chosen(rank, token, k)) + (i % H == 1 ? first : 0);
      sum += data<float>(weights)[token * K + k] * y;
    }
    return sum;
  };
  return example::compare(rank, data<float>(result), expected, T * H);
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
