// SPDX-License-Identifier: Apache-2.0
// Copies as a NIC does: to memory, past the caches of the core that copies. On an H200's host one thread copies twice
// as much past the caches of what a GPU wrote as memcpy does, and the GPU reads the copy sooner
// (perf/results/h200-host-copies.json). Other processors than x86 copy as memcpy does.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ucclep::transport::loopback {

constexpr size_t copy_line = 64;
constexpr size_t min_past_caches = 2048;  // what is less leaves too much of its first and last lines to plain stores

#ifdef __SSE2__
// Lines that begin at `to`. Afterwards all is visible to who acquires what this thread releases, as with plain stores.
inline void copy_lines_past_caches(char* to, const char* from, size_t lines) noexcept {
  for (; lines > 0; --lines, to += copy_line, from += copy_line) {
    __m128i piece[copy_line / sizeof(__m128i)];
    std::memcpy(piece, from, copy_line);
    for (size_t i = 0; i < copy_line / sizeof(__m128i); ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, piece[i]);
  }
  _mm_sfence();  // those stores are not ordered by a release
}
#else
inline void copy_lines_past_caches(char* to, const char* from, size_t lines) noexcept {
  std::memcpy(to, from, lines * copy_line);
}
#endif

inline void nic_copy(char* to, const char* from, size_t bytes) noexcept {
  if (bytes < min_past_caches) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t head = -reinterpret_cast<uintptr_t>(to) % copy_line, lines = (bytes - head) / copy_line;
  const size_t tail = head + lines * copy_line;
  std::memcpy(to, from, head);
  copy_lines_past_caches(to + head, from + head, lines);
  std::memcpy(to + tail, from + tail, bytes - tail);
}

}  // namespace ucclep::transport::loopback
