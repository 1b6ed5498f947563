// SPDX-License-Identifier: Apache-2.0
#include "tensors.hpp"

#include <algorithm>
#include <vector>

#include "api.hpp"

namespace ucclep::perf {

Tensors::Tensors(DeviceMemory& memory, const Shape& shape, int capacity, bool combines)
    : memory_(memory), shape_(shape), combines_(combines) {
  for (ucclEpTensor_t* each : {&tokens, &scales, &topk_idx, &weights, &counts, &out_tokens, &out_scales, &out_idx,
                               &out_weights, &out_source, &combine_in, &combine_out}) {
    *each = UCCLEP_TENSOR_INIT;
  }
  const size_t choices = static_cast<size_t>(capacity) * shape.topk;
  tokens.data = memory.allocate(capacity * shape.input_row_bytes());
  if (shape.scales() > 0) scales.data = memory.allocate(capacity * shape.scales() * sizeof(float));
  topk_idx.data = memory.allocate(choices * sizeof(int64_t));
  weights.data = memory.allocate(choices * sizeof(float));
  counts.data = memory.allocate(std::max(shape.local_experts(), shape.ranks) * sizeof(int64_t));
  if (combines) combine_out.data = memory.allocate(capacity * shape.combine_row_bytes());
}

void Tensors::resize(int tokens, int64_t rows) {
  if (rows > rows_) allocate_rows(rows);
  describe_inputs(tokens);
  describe_rows();
}

void Tensors::allocate_rows(int64_t rows) {
  for (ucclEpTensor_t* old : {&out_tokens, &out_scales, &out_idx, &out_weights, &out_source, &combine_in}) {
    memory_.free(bytes_of(*old));
    old->data = nullptr;
  }
  rows_ = rows;
  const int entries = shape_.per_expert() ? 1 : shape_.topk;
  out_tokens.data = memory_.allocate(rows * shape_.row_bytes());
  if (shape_.scales() > 0) out_scales.data = memory_.allocate(rows * shape_.scales() * sizeof(float));
  // Kernels have int32 there, so rounds do without.
  if (!shape_.per_expert() && !shape_.returns_tokens) out_idx.data = memory_.allocate(rows * entries * sizeof(int64_t));
  out_weights.data = memory_.allocate(rows * entries * sizeof(float));
  out_source.data = memory_.allocate(rows * sizeof(int64_t));
  if (combines_ && !shape_.returns_tokens) combine_in.data = memory_.allocate(rows * shape_.combine_row_bytes());
}

void Tensors::describe_inputs(int64_t n) {
  const int64_t k = shape_.topk, hidden = shape_.hidden;
  tokens = tensor(tokens.data, shape_.dtype, {n, hidden});
  scales = tensor(scales.data, ucclEpFloat32, {n, shape_.scales()});
  topk_idx = tensor(topk_idx.data, ucclEpInt64, {n, k});
  weights = tensor(weights.data, ucclEpFloat32, {n, k});
  counts = tensor(counts.data, ucclEpInt64, {shape_.per_expert() ? shape_.local_experts() : shape_.ranks});
  combine_out = tensor(combine_out.data, shape_.combine_dtype(), {n, hidden});
}

// LL has a dimension of zones before that of rows: experts or sources.
void Tensors::describe_rows() {
  const int64_t zones = shape_.per_expert() ? shape_.local_experts() : shape_.ranks;
  const auto received = [&](const ucclEpTensor_t& old, ucclEpDataType_t dtype, const std::vector<int64_t>& row) {
    std::vector<int64_t> sizes = {rows_};
    if (shape_.mode == UCCLEP_MODE_LL) sizes = {zones, rows_ / zones};
    sizes.insert(sizes.end(), row.begin(), row.end());
    return tensor(old.data, dtype, sizes);
  };
  const int64_t k = shape_.topk, hidden = shape_.hidden;
  out_tokens = received(out_tokens, shape_.received_dtype(), {hidden});
  out_scales = received(out_scales, ucclEpFloat32, {shape_.scales()});
  out_idx = received(out_idx, ucclEpInt64, {k});
  out_weights =
      received(out_weights, ucclEpFloat32, shape_.per_expert() ? std::vector<int64_t>{} : std::vector<int64_t>{k});
  out_source = received(out_source, ucclEpInt64, {});
  combine_in = received(combine_in, shape_.combine_dtype(), {hidden});
}

}  // namespace ucclep::perf
