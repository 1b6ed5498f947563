// SPDX-License-Identifier: Apache-2.0
#include "device/host/memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/sealed_memory.hpp"

namespace ucclep::executor {
namespace {

using FileId = std::pair<dev_t, ino_t>;

// What this process has mapped.
struct Mappings {
  std::mutex mutex;
  std::map<FileId, std::weak_ptr<SealedMemory>> of;
};
Mappings& mappings() {
  constinit static PerProcess<Mappings> all;
  return all.get();
}

FileId id_of(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) fail(ucclEpSystemError, "fstat of window memory: {}", std::strerror(errno));
  return {status.st_dev, status.st_ino};
}

// One mapping per file: make() is asked only where the process has none.
template <class Make>
std::shared_ptr<SealedMemory> mapping_of(FileId id, Make&& make) {
  Mappings& all = mappings();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.of, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<SealedMemory>& known = all.of[id];
  std::shared_ptr<SealedMemory> mapping = known.lock();
  if (mapping == nullptr) {
    mapping = std::make_shared<SealedMemory>(make());
    known = mapping;
  }
  return mapping;
}

// The mapping that holds the bytes; null: they are not in shared memory.
std::shared_ptr<SealedMemory> mapping_around(const void* data, size_t bytes) {
  Mappings& all = mappings();
  std::lock_guard lock(all.mutex);
  for (const auto& [id, known] : all.of) {
    std::shared_ptr<SealedMemory> mapping = known.lock();
    if (mapping != nullptr && mapping->holds(data, bytes)) return mapping;
  }
  return nullptr;
}

class Memfd : public SharedMemory {
 public:
  Memfd(std::shared_ptr<SealedMemory> mapping, uint64_t offset, uint64_t bytes)
      : mapping_(std::move(mapping)), offset_(offset), bytes_(bytes) {
    if (bytes == 0 || offset > mapping_->bytes() || bytes > mapping_->bytes() - offset) {
      fail(ucclEpInvalidArgument, "window memory of {} bytes, of which {} are to be mapped from byte {} on",
           mapping_->bytes(), bytes, offset);
    }
  }
  void* data() const override { return mapping_->data() + offset_; }
  MemoryTicket ticket() const override {
    return {MemoryTicket::Way::descriptor, mapping_->bytes(), offset_, bytes_, {}};
  }
  int fd() const override { return mapping_->fd(); }

 private:
  std::shared_ptr<SealedMemory> mapping_;
  uint64_t offset_, bytes_;
};

// Memory that only threads of this process reach.
class PlainMemory : public SharedMemory {
 public:
  PlainMemory(void* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  void* data() const override { return data_; }
  MemoryTicket ticket() const override { return {MemoryTicket::Way::address, bytes_, 0, bytes_, {}}; }
  int fd() const override { return -1; }

 private:
  void* data_;
  uint64_t bytes_;
};

}  // namespace

#if defined(UCCLEP_ASAN)
DeviceMemory::DeviceMemory(size_t bytes) : data_(nullptr, {bytes}) {
  void* data = nullptr;
  if (posix_memalign(&data, 4096, bytes) != 0) fail(ucclEpOutOfMemory, "{} bytes of device memory", bytes);
  std::memset(data, 0, bytes);
  data_.reset(data);
}
void DeviceMemory::Free::operator()(void* data) const {
  std::free(data);
}
#else
DeviceMemory::DeviceMemory(size_t bytes) : data_(nullptr, {bytes}) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) fail(ucclEpOutOfMemory, "{} bytes of device memory: {}", bytes, std::strerror(errno));
  data_.reset(data);
}
void DeviceMemory::Free::operator()(void* data) const {
  munmap(data, bytes);
}
#endif

std::unique_ptr<SharedMemory> create_shared_memory(size_t bytes) {
  SealedMemory memory = SealedMemory::create(bytes);
  const FileId id = id_of(memory.fd());
  return std::make_unique<Memfd>(mapping_of(id, [&] { return std::move(memory); }), 0, bytes);
}

std::unique_ptr<SharedMemory> map_shared_memory(const MemoryTicket& ticket, Fd fd) {
  const FileId id = id_of(fd.get());
  return std::make_unique<Memfd>(mapping_of(id, [&] { return SealedMemory::map(std::move(fd)); }), ticket.offset,
                                 ticket.bytes);
}

std::unique_ptr<SharedMemory> offer_memory(void* data, size_t bytes, bool beyond_process) {
  if (std::shared_ptr<SealedMemory> mapping = mapping_around(data, bytes)) {
    const auto offset = static_cast<uint64_t>(static_cast<char*>(data) - mapping->data());
    return std::make_unique<Memfd>(std::move(mapping), offset, bytes);
  }
  if (beyond_process) {
    fail(ucclEpNotSupported,
         "the {} bytes at {} cannot be shared with other processes: on the host device that takes memory of one "
         "ucclEpMemAlloc",
         bytes, data);
  }
  return std::make_unique<PlainMemory>(data, bytes);
}

std::string name_address(const void* address) {
  const std::shared_ptr<SealedMemory> mapping = mapping_around(address, 1);
  if (mapping == nullptr) return fmt::format("{}", address);
  return fmt::format("{} (offset {:#x} of a window of {} bytes)", address,
                     static_cast<const char*>(address) - mapping->data(), mapping->bytes());
}

}  // namespace ucclep::executor
