// SPDX-License-Identifier: Apache-2.0
// Memory straight from the kernel, zeroed. The executor keeps what lanes touch in it: unlike free(), munmap() is no
// access in the eyes of ThreadSanitizer.
#pragma once
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/error.hpp"

namespace ucclep::executor {

class Pages {
 public:
  Pages() = default;
  explicit Pages(size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
    if (bytes_ == 0) return;
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) {
      data_ = nullptr;
      fail(ucclEpOutOfMemory, "mmap of {} bytes for the host device: {}", bytes_, errno_text(errno));
    }
  }
  Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ucclep::executor
