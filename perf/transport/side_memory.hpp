// SPDX-License-Identifier: Apache-2.0
// The memory between which a side's transport writes: the host's, or what a group of GPUs has for NICs, pinned host
// memory.
#pragma once
#include <cstddef>
#include <memory>

#include "transport/command_line.hpp"
#include "transport/transport.hpp"

namespace ucclep::perf {

class SideMemory {
 public:
  virtual ~SideMemory() = default;
  virtual char* data() const = 0;
  virtual transport::Memory region() const = 0;
};

// Pinned memory is that of the GPU with the number of the place. Error(ucclEpNotSupported) where no GPU is.
std::unique_ptr<SideMemory> make_side_memory(const TransportOptions& options, Place place, size_t bytes);

}  // namespace ucclep::perf
