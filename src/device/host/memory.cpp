// SPDX-License-Identifier: Apache-2.0
#include "device/host/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace ucclep::executor {
namespace {

using FileId = std::pair<dev_t, ino_t>;

struct Mapping {
  void* data = nullptr;
  size_t bytes = 0;  // of the whole file

  Mapping(int fd, size_t size) : bytes(size) {
    data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
      fail(ucclEpOutOfMemory, "mapping {} bytes of window memory: {}", size, std::strerror(errno));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data, bytes); }
};

// What this process has mapped.
struct Mappings {
  std::mutex mutex;
  std::map<FileId, std::weak_ptr<Mapping>> of;
};
Mappings& mappings() {
  static Mappings all;
  return all;
}

std::shared_ptr<Mapping> mapping_of(int fd, const struct stat& status) {
  Mappings& all = mappings();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.of, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Mapping>& known = all.of[{status.st_dev, status.st_ino}];
  std::shared_ptr<Mapping> mapping = known.lock();
  if (mapping == nullptr) {
    mapping = std::make_shared<Mapping>(fd, static_cast<size_t>(status.st_size));
    known = mapping;
  }
  return mapping;
}

class Memfd : public SharedMemory {
 public:
  Memfd(Fd fd, size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
    struct stat status;
    if (fstat(fd_.get(), &status) != 0) fail(ucclEpSystemError, "fstat of window memory: {}", std::strerror(errno));
    if (bytes == 0 || status.st_size < 0 || static_cast<size_t>(status.st_size) < bytes) {
      fail(ucclEpInvalidArgument, "window memory of {} bytes, of which {} are to be mapped", status.st_size, bytes);
    }
    // Without the seal its owner could shrink it, and touching it would be a SIGBUS here.
    if ((fcntl(fd_.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
      fail(ucclEpInvalidArgument, "window memory that is not a memfd sealed against shrinking");
    }
    mapping_ = mapping_of(fd_.get(), status);
  }
  void* data() const override { return mapping_->data; }
  size_t bytes() const override { return bytes_; }
  int fd() const override { return fd_.get(); }

 private:
  Fd fd_;
  size_t bytes_;
  std::shared_ptr<Mapping> mapping_;
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
  Fd fd(memfd_create("ucclep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail(ucclEpSystemError, "memfd_create: {}", std::strerror(errno));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail(ucclEpOutOfMemory, "a memfd of {} bytes: {}", bytes, std::strerror(errno));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail(ucclEpSystemError, "sealing a memfd: {}", std::strerror(errno));
  }
  return std::make_unique<Memfd>(std::move(fd), bytes);
}

std::unique_ptr<SharedMemory> map_shared_memory(int fd, size_t bytes) {
  return std::make_unique<Memfd>(Fd(fd), bytes);
}

std::string name_address(const void* address) {
  Mappings& all = mappings();
  std::lock_guard lock(all.mutex);
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const auto& [id, known] : all.of) {
    const std::shared_ptr<Mapping> mapping = known.lock();
    if (mapping == nullptr) continue;
    const uintptr_t offset = at - reinterpret_cast<uintptr_t>(mapping->data);
    if (offset < mapping->bytes) {
      return fmt::format("{} (offset {:#x} of a window of {} bytes)", address, offset, mapping->bytes);
    }
  }
  return fmt::format("{}", address);
}

}  // namespace ucclep::executor
