// SPDX-License-Identifier: Apache-2.0
// From checked tensors to what kernels read: addresses and strides in bytes.
#pragma once
#include "host/boundary/tensor.hpp"
#include "ucclep/device/layout/views.hpp"

namespace ucclep {

// The last dimension is the element; before it the row; before that the slab or source rank. Empty or not given: NULL
// data stays NULL.
View view_of(const TensorView& tensor);
// The last dimension is the row (a value per row), before it the slab or source rank.
View rows_view_of(const TensorView& tensor);

// The counters of a call, checked against the group; `unpadded` and the rest may all be absent.
CounterViews counter_views(const ucclEpCounters_t* counters, const char* name, const GroupShape& shape);

// Scales: any strides, any data type that `wire` can carry.
bool is_byte_row(ucclEpDataType_t dtype);

}  // namespace ucclep
