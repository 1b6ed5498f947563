// SPDX-License-Identifier: Apache-2.0
// Window memory of the host device: a memfd, sealed in size, that other processes map.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "device/device.hpp"

namespace ucclep::executor {

// Memory of one device: zeroed, 4096-byte aligned. Under AddressSanitizer it comes from its allocator, with red zones.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes);
  void* data() const { return data_.get(); }
  void leak() { static_cast<void>(data_.release()); }

 private:
  struct Free {
    size_t bytes;
    void operator()(void* data) const;
  };
  std::unique_ptr<void, Free> data_;
};

std::unique_ptr<SharedMemory> create_shared_memory(size_t bytes);
// Memory that this process has mapped already keeps its address: ranks that are threads of one process see a window
// where its owner does, and so does ThreadSanitizer.
std::unique_ptr<SharedMemory> map_shared_memory(const MemoryTicket& ticket, Fd fd);
// Beyond the process goes only what lies in shared memory of the library.
std::unique_ptr<SharedMemory> offer_memory(void* data, size_t bytes, bool beyond_process);

// "0x7f0012345680 (offset 0x1680 of a window of 65536 bytes)", for people.
std::string name_address(const void* address);

}  // namespace ucclep::executor
