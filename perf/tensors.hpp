// SPDX-License-Identifier: Apache-2.0
// Everything that a rank gives to the operations and gets from them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "device_memory.hpp"
#include "workload.hpp"

namespace ucclep::perf {

class Tensors {
 public:
  // Inputs have room for `capacity` tokens. combines: make the tensors of combine, too.
  Tensors(DeviceMemory& memory, const Shape& shape, int capacity, bool combines);
  // Gives all tensors the extents of a size, and room for so many received rows.
  void resize(int tokens, int64_t rows);

  // Those without an address do not exist in this shape.
  ucclEpTensor_t tokens, scales, topk_idx, weights, counts;
  ucclEpTensor_t out_tokens, out_scales, out_idx, out_weights, out_source;
  ucclEpTensor_t combine_in, combine_out;

 private:
  void allocate_rows(int64_t rows);
  void describe_inputs(int64_t tokens);
  void describe_rows();

  DeviceMemory& memory_;
  const Shape& shape_;
  bool combines_;
  int64_t rows_ = 0;
};

inline std::byte* bytes_of(const ucclEpTensor_t& tensor) {
  return static_cast<std::byte*>(tensor.data);
}

}  // namespace ucclep::perf
