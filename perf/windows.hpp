// SPDX-License-Identifier: Apache-2.0
// Tensors that peers may reach, for --windows.
#pragma once
#include <cstddef>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

class Windows {
 public:
  // Collective, as the destructor is unless a rank has failed: then the communicator takes them along. Tensors without
  // an address are left out.
  Windows(ucclEpComm_t comm, const std::vector<const ucclEpTensor_t*>& tensors);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // In the order of the tensors.
  ucclEpWindow_t operator[](size_t i) const { return windows_[i]; }

 private:
  ucclEpComm_t comm_;
  std::vector<ucclEpWindow_t> windows_;
};

}  // namespace ucclep::perf
