// SPDX-License-Identifier: Apache-2.0
// Memory of a fuzz target's tensors.
#pragma once
#include <sys/mman.h>

#include <cstddef>

#if !defined(UCCLEP_FUZZ_ARENAS)
#define UCCLEP_FUZZ_ARENAS 1
#endif

namespace ucclep::fuzz {

// before: for strides of -1, which tensors may have.
constexpr size_t before_arena = 64 << 10, arena_bytes = size_t{16} << 20, arenas = UCCLEP_FUZZ_ARENAS;

// Tensors may overlap: what operations then do to each other is for the caller to answer for. So under ThreadSanitizer
// they do not: there are many arenas, in turns.
inline char* arena() {
  static size_t last = 0;
  static char* const bytes =
      static_cast<char*>(mmap(nullptr, arenas * (before_arena + arena_bytes), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  last = (last + 1) % arenas;
  return bytes + last * (before_arena + arena_bytes) + before_arena;
}

}  // namespace ucclep::fuzz
