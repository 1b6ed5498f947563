// SPDX-License-Identifier: Apache-2.0
// Window memory of the host device: a memfd, sealed in size, that other processes map.
#pragma once
#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "base/parts.hpp"
#include "base/sealed_memory.hpp"
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

// Shared memory in parts, zeroed, each from the beginning of a page: a process may have few descriptors and many
// allocations.
class SharedHeap {
 public:
  void* alloc(size_t bytes);
  bool free(void* part);  // false: it is not of this heap
  // The bytes begin in this heap, but not all of them are of one part.
  bool splits(const void* data, size_t bytes) const;
  void leak();  // none of it is unmapped any more

 private:
  static constexpr size_t page_bytes = 4096, min_chunk = size_t{1} << 20, max_chunk = size_t{1} << 30;
  struct Chunk {
    explicit Chunk(std::shared_ptr<SealedMemory> made);
    std::shared_ptr<SealedMemory> memory;
    Parts parts;
  };
  Chunk& grow(size_t bytes);
  std::list<Chunk> chunks_;
};

std::unique_ptr<SharedMemory> create_shared_memory(size_t bytes);
// Memory that this process has mapped already keeps its address: ranks that are threads of one process see a window
// where its owner does, and so does ThreadSanitizer.
std::unique_ptr<SharedMemory> map_shared_memory(const MemoryTicket& ticket, Fd fd);
// Error(ucclEpNotSupported): it is no memory of one alloc_shareable.
[[noreturn]] void refuse_to_share(const void* data, size_t bytes);
// Beyond the process goes only what lies in shared memory of the library.
std::unique_ptr<SharedMemory> offer_memory(void* data, size_t bytes, bool beyond_process);

// "0x7f0012345680 (offset 0x1680 of a window of 65536 bytes)", for people.
std::string name_address(const void* address);

}  // namespace ucclep::executor
