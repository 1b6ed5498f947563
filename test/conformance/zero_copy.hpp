// SPDX-License-Identifier: Apache-2.0
// Tensors of an exchange that lie in windows of the user's, on all ranks, on some, or with a half.
#pragma once
#include <exception>
#include <functional>
#include <vector>

#include "conformance/exchange.hpp"

namespace ucclep::test {

enum class Exposed { no, whole, half };
enum Which { dispatched = 0, scales, combined };
// What of its tensors a rank has in a window.
using Share = std::function<Exposed(int rank, Which which)>;

struct Range {
  char* data;
  size_t bytes;
};

inline Range range_of(const ucclEpTensor_t& tensor) {
  int64_t last = 0, contiguous = 1;
  for (int i = tensor.ndim; i-- > 0;) {
    last += (tensor.sizes[i] - 1) * (tensor.strides[i] != 0 ? tensor.strides[i] : contiguous);
    contiguous *= tensor.sizes[i];
  }
  if (contiguous == 0) return {nullptr, 0};
  return {static_cast<char*>(tensor.data), static_cast<size_t>(last + 1) * reference::element_bytes(tensor.dtype)};
}

// Windows over the tensors of an exchange, on all ranks in one order; where a rank has nothing to expose, over other
// memory.
class Windows {
 public:
  Windows(const Rank& rank, ucclEpComm_t comm, const Exchange& exchange, const Share& share) : comm_(comm) {
    ok(ucclEpMemAlloc(comm, &other_, other_bytes), "ucclEpMemAlloc");
    add(exchange.dispatch_out.tokens, share(rank.rank, dispatched));
    if (exchange.scenario().scales) add(exchange.dispatch_out.scales, share(rank.rank, scales));
    add(exchange.combine_in.tokens, share(rank.rank, combined));
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  // Collective: not where a rank has failed.
  ~Windows() {
    if (std::uncaught_exceptions() > 0) return;
    for (ucclEpWindow_t window : windows_) ucclEpWindowDeregister(comm_, window);
    ucclEpMemFree(comm_, other_);
  }

 private:
  static constexpr size_t other_bytes = 4096;

  void add(const ucclEpTensor_t* tensor, Exposed part) {
    Range range = range_of(*tensor);
    if (part == Exposed::half) range.bytes /= 2;
    if (part == Exposed::no || range.bytes == 0) range = {static_cast<char*>(other_), other_bytes};
    ucclEpWindow_t window = nullptr;
    ok(ucclEpWindowRegister(comm_, range.data, range.bytes, &window), "ucclEpWindowRegister");
    windows_.push_back(window);
  }

  ucclEpComm_t comm_;
  void* other_ = nullptr;
  std::vector<ucclEpWindow_t> windows_;
};

}  // namespace ucclep::test
