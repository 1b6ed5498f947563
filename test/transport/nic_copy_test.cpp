// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback/nic_copy.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace ucclep::transport::loopback {
namespace {

// Copies into a field of dots and says whether just those bytes have changed.
bool copies_exactly(const std::string& from, size_t from_offset, size_t to_offset, size_t bytes) {
  alignas(copy_line) static char to[8192];
  std::string expected(sizeof(to), '.');
  expected.replace(to_offset, bytes, from, from_offset, bytes);
  std::memset(to, '.', sizeof(to));
  nic_copy(to + to_offset, from.data() + from_offset, bytes);
  return std::memcmp(to, expected.data(), sizeof(to)) == 0;
}

TEST_CASE("loopback: copies move all bytes and no others, wherever they begin and end", "[transport]") {
  std::string from(4096, '\0');
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>('A' + i % 61);
  size_t wrong = 0, copies = 0;
  for (const size_t bytes : {size_t{0}, size_t{1}, min_past_caches - 1, min_past_caches, min_past_caches + 1,
                             min_past_caches + copy_line - 1, size_t{3000}}) {
    for (size_t to_offset = 0; to_offset < 2 * copy_line; ++to_offset) {
      for (const size_t from_offset : {size_t{0}, size_t{1}, size_t{16}, size_t{63}, to_offset}) {
        wrong += copies_exactly(from, from_offset, to_offset, bytes) ? 0 : 1;
        ++copies;
      }
    }
  }
  CHECK(copies == 7 * 128 * 5);
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace ucclep::transport::loopback
