// SPDX-License-Identifier: Apache-2.0
// Where the C++ and the CUDA half of the example meet.
#pragma once
#include <cuda_runtime_api.h>
#include <ucclep/ucclep.h>

namespace gemm {

constexpr int E = 16, K = 4, T = 64, H = 256;  // experts, experts of a token, tokens of a rank, elements of a row

// out = rows x weights of the expert, for the first rows[e] rows of each expert's slab; what is done goes home.
struct Experts {
  const float *rows, *weights;  // [L, slab, H], [L, H, H]
  float* out;                   // [L, slab, H]
  const int* counts;            // [L]
  int experts, slab;            // L, rows of a slab
};
cudaError_t launch(ucclEpHandle_t handle, const Experts& experts, cudaStream_t stream);

}  // namespace gemm
