// SPDX-License-Identifier: Apache-2.0
// Quantisation fused with dispatch: a warp makes fp8 of a token, with a scale for each 128 elements, and sends it at
// once.
//   nvcc -std=c++20 -arch=sm_90a fused_quantise_dispatch.cu -lucclep
#include <ucclep/device.hpp>

#include "example.hpp"

constexpr int E = 16, K = 2, T = 40, H = 512,
              G = 128;    // experts, per token, tokens of a rank, elements of a row, of a scale
constexpr int S = H / G;  // scales of a row

struct Quantiser {
  ucclEpDeviceHandle handle;
  ucclep::RowShape shape;
  const float *rows, *weights;
  const int32_t* experts;
  uint8_t* bytes;  // [T, H]: a row lies in memory while it is sent
  float* scales;   // [T, S]
};

// Warp verb.
UCCLEP_FN void quantise(const float* row, uint8_t* bytes, float* scale) {
  uint32_t largest = ucclep::float_bits(1e-4f);  // magnitudes are ordered as their bits are
  for (unsigned i = ucclep::lane_id(); i < G; i += ucclep::wave_size) {
    const uint32_t magnitude = ucclep::float_bits(row[i]) & 0x7fffffff;
    if (magnitude > largest) largest = magnitude;
  }
  const float a = ucclep::float_of(ucclep::reduce_max(largest));
  for (unsigned i = ucclep::lane_id(); i < G; i += ucclep::wave_size) bytes[i] = ucclep::to_e4m3(row[i] * (448 / a));
  if (ucclep::lane_id() == 0) *scale = a / 448;
}

UCCLEP_KERNEL(quantise_and_send, Quantiser) {
  const auto op = ucclep::ll::dispatch_begin(args.handle, args.shape);
  for (unsigned token = ucclep::grid_warp(); token < T; token += ucclep::grid_warps()) {
    uint8_t* bytes = args.bytes + token * H;
    float* scales = args.scales + token * S;
    for (int s = 0; s < S; ++s) quantise(args.rows + token * H + s * G, bytes + s * G, scales + s);
    ucclep::sync_warp();  // all of the row is there
    ucclep::ll::dispatch_send(ucclep::warp{}, op, token, bytes, scales, args.experts + token * K,
                              args.weights + token * K);
  }
  ucclep::ll::dispatch_end(ucclep::block{}, op, T);
}

float element(int64_t rank, int64_t token, int64_t i) {
  return static_cast<float>((rank * 131 + token * 17 + i * 7) % 255 - 127) / static_cast<float>(1 << i % 5);
}

int run(ucclEpComm_t comm, int rank, int ranks) {
  const int slab = ranks * T, local = E / ranks;
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H + S * sizeof(float);
  ucclEpHandle_t handle = example::make_handle(comm, shape);

  const auto make = [comm](auto type, auto... sizes) { return example::make_tensor(comm, type, {sizes...}); };
  const ucclEpTensor_t rows = make(ucclEpFloat32, T, H), bytes = make(ucclEpFloat8e4m3, T, H),
                       scales = make(ucclEpFloat32, T, S), ids = make(ucclEpInt32, T, K),
                       weights = make(ucclEpFloat32, T, K), received = make(ucclEpFloat8e4m3, local, slab, H),
                       scales_in = make(ucclEpFloat32, local, slab, S), from = make(ucclEpInt64, local, slab),
                       counts = make(ucclEpInt32, local);
  for (int i = 0; i < T * H; ++i) example::data<float>(rows)[i] = element(rank, i / H, i % H);
  for (int i = 0; i < T * K; ++i) example::data<int>(ids)[i] = (rank + i / K + 5 * (i % K)) % E;

  ucclEpCounters_t counters = UCCLEP_COUNTERS_INIT;
  counters.tokens_per_expert = &counts;
  ucclEpDispatchOutputs_t out = UCCLEP_DISPATCH_OUTPUTS_INIT;
  out.tokens = &received, out.scales = &scales_in, out.src_info = &from, out.counters = &counters;
  Quantiser kernel{{},
                   {H, ucclEpFloat8e4m3, S * sizeof(float), K, ucclEpFloat32},
                   example::data<float>(rows),
                   example::data<float>(weights),
                   example::data<int>(ids),
                   example::data<uint8_t>(bytes),
                   example::data<float>(scales)};
  CHECK(ucclEpHandleGetDevice(handle, &kernel.handle));
  LAUNCH(comm, quantise_and_send, 4, 256, kernel);
  CHECK(ucclEpCompleteDispatch(handle, &out, nullptr, nullptr));
  CHECK(ucclEpStreamSynchronize(comm, nullptr));

  int wrong = 0, all = 0;
  for (int row = 0; row < local * slab; ++row) {
    if (row % slab >= example::data<int>(counts)[row / slab]) continue;
    const int64_t source = example::data<int64_t>(from)[row];
    for (int i = 0; i < H; ++i, ++all) {
      const float x = element(source >> 32, source & 0xffffffff, i),
                  scale = example::data<float>(scales_in)[row * S + i / G];
      const float got = ucclep::from_e4m3(example::data<uint8_t>(received)[row * H + i]) * scale;
      wrong += std::abs(got - x) > std::abs(x) / 16 + scale / 512;  // four significant bits, or the smallest steps
    }
  }
  return example::report(rank, wrong, all);
}

int main(int argc, char** argv) {
  return example::run_ranks(argc, argv, run);
}
