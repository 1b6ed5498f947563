// SPDX-License-Identifier: Apache-2.0
#include "device/host/memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/attempt.hpp"
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
  if (fstat(fd, &status) != 0)
    fail(ucclEpSystemError, "cannot read the status of window memory: fstat: {}", errno_text(errno));
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

std::shared_ptr<SealedMemory> create_mapping(size_t bytes) {
  SealedMemory memory = SealedMemory::create(bytes);
  const FileId id = id_of(memory.fd());
  return mapping_of(id, [&] { return std::move(memory); });
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
      fail(ucclEpInvalidArgument, "{} bytes from byte {} on are outside the {} bytes of the memory's descriptor", bytes,
           offset, mapping_->bytes());
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
  refuse_more_than_the_machine_has(bytes);
  void* data = nullptr;
  if (posix_memalign(&data, 4096, bytes) != 0)
    fail(ucclEpOutOfMemory, "cannot allocate {} bytes of device memory", bytes);
  std::memset(data, 0, bytes);
  data_.reset(data);
}
void DeviceMemory::Free::operator()(void* data) const {
  std::free(data);
}
#else
DeviceMemory::DeviceMemory(size_t bytes) : data_(nullptr, {bytes}) {
  refuse_more_than_the_machine_has(bytes);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    fail(ucclEpOutOfMemory, "cannot allocate {} bytes of device memory: {}", bytes, errno_text(errno));
  data_.reset(data);
}
void DeviceMemory::Free::operator()(void* data) const {
  munmap(data, bytes);
}
#endif

std::unique_ptr<SharedMemory> create_shared_memory(size_t bytes) {
  return std::make_unique<Memfd>(create_mapping(bytes), 0, bytes);
}

SharedHeap::Chunk::Chunk(std::shared_ptr<SealedMemory> made)
    : memory(std::move(made)), parts(memory->data(), memory->bytes(), page_bytes) {}

void* SharedHeap::alloc(size_t bytes) {
  for (Chunk& chunk : chunks_) {
    if (void* const part = chunk.parts.take(bytes)) return part;
  }
  return grow(bytes).parts.take(bytes);
}

// Each chunk is as large as all before it: a few of them hold any number of allocations. Where there is not so much
// room one is made for this allocation alone.
SharedHeap::Chunk& SharedHeap::grow(size_t bytes) {
  size_t all = 0;
  for (const Chunk& chunk : chunks_) all += chunk.memory->bytes();
  const size_t own = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  const size_t usual = std::clamp(all, min_chunk, max_chunk);
  if (own < usual) {
    std::shared_ptr<SealedMemory> large;
    if (!attempt([&] { large = create_mapping(usual); })) return chunks_.emplace_back(std::move(large));
  }
  return chunks_.emplace_back(create_mapping(own));
}

bool SharedHeap::free(void* part) {
  const auto chunk = std::ranges::find_if(chunks_, [&](const Chunk& one) { return one.parts.owns(part); });
  if (chunk == chunks_.end()) return false;
  const size_t bytes = chunk->parts.bytes_from(part);
  chunk->parts.give(part);
  if (chunk->parts.empty()) {
    chunks_.erase(chunk);
  } else if (madvise(part, bytes, MADV_REMOVE) != 0) {  // what it held goes back to the kernel
    std::memset(part, 0, bytes);
  }
  return true;
}

bool SharedHeap::splits(const void* data, size_t bytes) const {
  return std::ranges::any_of(
      chunks_, [&](const Chunk& one) { return one.memory->holds(data, 1) && one.parts.bytes_from(data) < bytes; });
}

void SharedHeap::leak() {
  for (const Chunk& chunk : chunks_) new std::shared_ptr<SealedMemory>(chunk.memory);
}

std::unique_ptr<SharedMemory> map_shared_memory(const MemoryTicket& ticket, Fd fd) {
  if (!fd) fail(ucclEpRemoteError, "the rank sent no descriptor");
  const FileId id = id_of(fd.get());
  return std::make_unique<Memfd>(mapping_of(id, [&] { return SealedMemory::map(std::move(fd)); }), ticket.offset,
                                 ticket.bytes);
}

void refuse_to_share(const void* data, size_t bytes) {
  fail(ucclEpNotSupported,
       "the {} bytes at {} cannot be shared with other processes: on the host device they must be within memory of one "
       "ucclEpMemAlloc",
       bytes, data);
}

std::unique_ptr<SharedMemory> offer_memory(void* data, size_t bytes, bool beyond_process) {
  if (std::shared_ptr<SealedMemory> mapping = mapping_around(data, bytes)) {
    const auto offset = static_cast<uint64_t>(static_cast<char*>(data) - mapping->data());
    return std::make_unique<Memfd>(std::move(mapping), offset, bytes);
  }
  if (beyond_process) refuse_to_share(data, bytes);
  return std::make_unique<PlainMemory>(data, bytes);
}

std::string name_address(const void* address) {
  const std::shared_ptr<SealedMemory> mapping = mapping_around(address, 1);
  if (mapping == nullptr) return fmt::format("{}", address);
  return fmt::format("{} (offset {:#x} of a window of {} bytes)", address,
                     static_cast<const char*>(address) - mapping->data(), mapping->bytes());
}

}  // namespace ucclep::executor
