// SPDX-License-Identifier: Apache-2.0
#include "windows.hpp"

#include <exception>

#include "api.hpp"
#include "numeric.hpp"

namespace ucclep::perf {
namespace {

size_t tensor_bytes(const ucclEpTensor_t& tensor) {
  size_t bytes = element_bytes(tensor.dtype);
  for (int i = 0; i < tensor.ndim; ++i) bytes *= static_cast<size_t>(tensor.sizes[i]);
  return bytes;
}

}  // namespace

Windows::Windows(ucclEpComm_t comm, const std::vector<const ucclEpTensor_t*>& tensors) : comm_(comm) {
  for (const ucclEpTensor_t* tensor : tensors) {
    if (tensor->data == nullptr) continue;
    ucclEpWindow_t window = nullptr;
    check(ucclEpWindowRegister(comm_, tensor->data, tensor_bytes(*tensor), &window), "ucclEpWindowRegister", comm_);
    windows_.push_back(window);
  }
}

Windows::~Windows() {
  if (std::uncaught_exceptions() > 0) return;
  for (ucclEpWindow_t window : windows_) ucclEpWindowDeregister(comm_, window);
}

}  // namespace ucclep::perf
