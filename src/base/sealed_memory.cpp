// SPDX-License-Identifier: Apache-2.0
#include "base/sealed_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/quiet_signals.hpp"

namespace ucclep {

void refuse_more_than_the_machine_has(size_t bytes) {
  struct sysinfo machine{};
  if (sysinfo(&machine) != 0) return;
  const uint64_t most = (uint64_t{machine.totalram} + machine.totalswap) * machine.mem_unit;
  if (bytes <= most) return;
  fail(ucclEpOutOfMemory, "cannot allocate {} bytes: the machine has {} bytes of memory, swap included", bytes, most);
}

SealedMemory SealedMemory::create(size_t bytes) {
  refuse_more_than_the_machine_has(bytes);
  Fd fd(memfd_create("ucclep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail(ucclEpSystemError, "cannot create shared memory: {}", errno_text(errno));
  const QuietSignals quiet;
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail(ucclEpOutOfMemory, "cannot allocate {} bytes of shared memory: {}", bytes, errno_text(errno));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail(ucclEpSystemError, "cannot seal shared memory: {}", errno_text(errno));
  }
  return {std::move(fd), bytes};
}

SealedMemory SealedMemory::map(Fd fd) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0)
    fail(ucclEpSystemError, "cannot read the size of shared memory: fstat: {}", errno_text(errno));
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    fail(ucclEpInvalidArgument, "the shared memory is not a memfd that is sealed against shrinking");
  }
  if (status.st_size <= 0)
    fail(ucclEpInvalidArgument, "the shared memory has {} bytes, expected at least 1", status.st_size);
  SealedMemory mapped(std::move(fd), static_cast<size_t>(status.st_size));
  mapped.fd_.reset();
  return mapped;
}

SealedMemory::SealedMemory(Fd fd, size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED)
    fail(ucclEpOutOfMemory, "cannot map {} bytes of shared memory: {}", bytes, errno_text(errno));
  data_ = static_cast<char*>(mapped);
}

SealedMemory::SealedMemory(SealedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

SealedMemory::~SealedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

bool SealedMemory::holds(const void* first, size_t count) const {
  const size_t offset = reinterpret_cast<uintptr_t>(first) - reinterpret_cast<uintptr_t>(data_);
  return offset < bytes_ && count <= bytes_ - offset;
}

}  // namespace ucclep
