// SPDX-License-Identifier: Apache-2.0
// Tensors that peers may read or write where they are, since they lie in a window of the caller's (P14).
#pragma once
#include "host/boundary/tensor.hpp"
#include "host/context/communicator.hpp"
#include "ucclep/device/layout/views.hpp"

namespace ucclep {

// How peers find the rows of a two-dimensional tensor; nowhere, if not all of it lies in one window.
ExposedTensor expose(const ucclEpComm& comm, const TensorView& tensor);

}  // namespace ucclep
