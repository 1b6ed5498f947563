// SPDX-License-Identifier: Apache-2.0
// A memfd whose size is sealed, mapped whole: what processes of one machine share.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/fd.hpp"

namespace ucclep {

// The kernel reserves any size, and ends the process that touches more than there is. Error(ucclEpOutOfMemory): the
// machine has less, RAM and swap together.
void refuse_more_than_the_machine_has(size_t bytes);

class SealedMemory {
 public:
  static SealedMemory create(size_t bytes);  // zeroed
  // Someone else's, whose descriptor is closed when it is mapped. Throws Error(ucclEpInvalidArgument) when it is not
  // sealed against shrinking: its owner could make it shorter, and touching it would be a SIGBUS here.
  static SealedMemory map(Fd fd);

  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&&) = delete;
  ~SealedMemory();

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  // -1: it is someone else's
  bool holds(const void* first, size_t count) const;

 private:
  SealedMemory(Fd fd, size_t bytes);
  Fd fd_;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ucclep
