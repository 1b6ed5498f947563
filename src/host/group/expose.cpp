// SPDX-License-Identifier: Apache-2.0
#include "host/group/expose.hpp"

#include "host/context/communicator.hpp"
#include "host/memory/window_table.hpp"

namespace ucclep {
namespace {

// READY says strides in 32 bits.
bool travels(int64_t stride) {
  return stride >= 0 && stride <= UINT32_MAX;
}

}  // namespace

ExposedTensor expose(const ucclEpComm& comm, const TensorView& tensor) {
  if (comm.network) return {};  // relays read and write windows of the group's
  if (!tensor.given() || tensor.empty() || tensor.first_byte() != 0) return {};
  const int64_t stride = tensor.stride_bytes(0), step = tensor.stride_bytes(1);
  if (!travels(stride) || !travels(step)) return {};
  const auto place = find_window(comm, tensor.data(), static_cast<uint64_t>(tensor.end_byte()));
  if (!place) return {};
  return {place->id, static_cast<uint32_t>(stride), static_cast<uint32_t>(step), place->offset};
}

}  // namespace ucclep
