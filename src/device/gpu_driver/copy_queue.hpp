// SPDX-License-Identifier: Apache-2.0
// Copies by the GPU's copy engines, in a stream of their own: kernels that run do not hold them up. An event behind
// each says that it has ended.
#pragma once
#include <deque>
#include <vector>

#include "device/device.hpp"
#include "device/gpu_driver/own_stream.hpp"

namespace ucclep::gpu {

class DriverCopyQueue : public CopyQueue {
 public:
  DriverCopyQueue(const Driver& driver, Context context)
      : driver_(driver), context_(context), stream_(driver, context) {}
  ~DriverCopyQueue() override;
  void copy(void* to, const void* from, size_t bytes) override;
  uint64_t ended() override;

 private:
  Event next_event();

  const Driver& driver_;
  Context context_;
  OwnStream stream_;
  std::deque<Event> begun_;
  std::vector<Event> unused_;
  uint64_t ended_ = 0;
};

}  // namespace ucclep::gpu
