// SPDX-License-Identifier: Apache-2.0
// A dma-buf of the doubles: a file that says where in the process the memory lies.
#pragma once
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ucclep::doubles {

struct DmaBufContent {
  static constexpr uint64_t the_magic = 0x6675622d616d64;  // "dma-buf"
  uint64_t magic = the_magic;
  char* data = nullptr;
  size_t bytes = 0;
};

inline std::optional<DmaBufContent> read_dma_buf(int fd) {
  DmaBufContent content;
  const bool read = pread(fd, &content, sizeof content, 0) == sizeof content;
  return read && content.magic == DmaBufContent::the_magic ? std::optional(content) : std::nullopt;
}

}  // namespace ucclep::doubles
