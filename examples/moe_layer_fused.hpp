// SPDX-License-Identifier: Apache-2.0
// A whole MoE layer in one kernel (moe_layer_fused.cu), for programs that other compilers compile.
#pragma once
#include <ucclep/ucclep.h>

#include <cstddef>
#include <cstdint>

namespace moe_layer {

// All in device memory; matrices are bf16 and row-major. L: experts of this rank, C: rows of a slab (round_up(R * B,
// tile_rows)).
struct Layer {
  ucclEpHandle_t handle;     // LL, layout TILES
  int tokens, top_k;         // of this rank; of a token
  int hidden, intermediate;  // multiples of 256, and of 128
  int experts, tile_rows;    // L; 64 or 128
  int64_t slab;              // C
  const void* in;            // [tokens, hidden]
  const int32_t* ids;        // [tokens, top_k] experts that the router chose
  const float* weights;      // [tokens, top_k]
  const void *up_weights,
      *down_weights;          // [L, 2 * intermediate, hidden]: 8 rows of gate, 8 of up; [L, hidden, intermediate]
  void *rows, *inner, *made;  // [L * C, hidden], [L * C, intermediate], [L * C, hidden]
  void* words;                // words_bytes(layer)
  void* out;                  // [tokens, hidden]
  uint32_t* failed;           // set to 1 when the operation has failed
};

size_t words_bytes(const Layer& layer);
// Launches the layer with `blocks` blocks, which all have to be resident at once: at least one for two ranks, and at
// most the SMs of the GPU. NULL, or what is wrong.
const char* launch(const Layer& layer, int blocks, ucclEpStream_t stream);

}  // namespace moe_layer
