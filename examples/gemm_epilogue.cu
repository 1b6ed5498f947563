// SPDX-License-Identifier: Apache-2.0
// The last GEMM of the experts with combine's send phase as its epilogue: a row goes home when it is done, while others
// are still computed. (A real one would compute tiles with tensor cores; the epilogue is the same for each row.)
//   nvcc -std=c++20 -arch=sm_90a -c gemm_epilogue.cu
#include "gemm_epilogue.hpp"

#include <ucclep/device.hpp>

namespace gemm {
namespace {

__global__ void multiply_and_send(const ucclEpDeviceHandle handle, const ucclep::RowShape shape, const Experts e) {
  const auto op = ucclep::ll::combine_begin(handle, shape);
  for (int expert = 0; expert < e.experts; ++expert) {
    const float* weights = e.weights + expert * H * H;
    for (int row = static_cast<int>(blockIdx.x); row < e.counts[expert]; row += static_cast<int>(gridDim.x)) {
      const int index = expert * e.slab + row;
      const float* in = e.rows + index * H;
      float* out = e.out + index * H;  // in memory: the row's copy of another expert may wait for this one
      for (int column = static_cast<int>(threadIdx.x); column < H; column += static_cast<int>(blockDim.x)) {
        float sum = 0;
        for (int i = 0; i < H; ++i) sum += in[i] * weights[i * H + column];
        out[column] = sum;
      }
      ucclep::ll::combine_send(ucclep::block{}, op, index, out);
    }
  }
  ucclep::ll::combine_end(ucclep::block{}, op);
}

}  // namespace

cudaError_t launch(ucclEpHandle_t handle, const Experts& experts, cudaStream_t stream) {
  ucclEpDeviceHandle on_device;
  if (ucclEpHandleGetDevice(handle, &on_device) != ucclEpSuccess) return cudaErrorInvalidValue;
  ucclep::RowShape row{H, ucclEpFloat32};
  row.top_k = K;
  multiply_and_send<<<16, 256, 0, stream>>>(on_device, row, experts);
  return cudaGetLastError();
}

}  // namespace gemm
