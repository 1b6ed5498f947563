// SPDX-License-Identifier: Apache-2.0
// A row on its way in, received by any scope. Whole warps take lines as the library's kernels do (rows/line.hpp); a
// thread or some lanes of a warp take a word at a time, and look at its line's epoch first.
//
// | who releases                  | who acquires                     | what is ordered                         |
// |-------------------------------|----------------------------------|-----------------------------------------|
// | the line's store, or          | wait_lines: load_acquire (system)| the line's data before its words        |
// |   end_lines: fence, epoch     |   of the line's epoch            |                                         |
// | publish of a row's epoch      | wait_word: load_acquire (system) | the row before its words are read       |
#pragma once
#include <cstdint>

#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/row_out.hpp"
#include "ucclep/device/user/waits.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Lane verb: 8 bytes at offset `at` of what lines carry, which are there.
UCCLEP_FN uint64_t line_word(const char* lines, uint32_t at) {
  const char* const line = lines + at / line_payload * line_bytes;
  if constexpr (line_bytes == sizeof(Packet)) return load_packet(reinterpret_cast<const Packet*>(line)).value;
  return load_relaxed<Scope::system>(reinterpret_cast<const uint64_t*>(line + at % line_payload));
}

// Lane verb: waits until the lines that carry bytes [begin, end) are there. False: they did not come.
UCCLEP_FN bool wait_lines(const Op& op, Phase phase, uint32_t peer, const char* lines, uint32_t begin, uint32_t end) {
  UCCLEP_KEEP_LOOP
  for (uint32_t line = begin / line_payload; line * line_payload < end; ++line) {
    if (!await_word(op, phase, peer, lines + line * line_bytes + line_payload)) return false;
  }
  return true;
}

// Lane verb: of a row's scales, of which there are `all` bytes, those that a word at offset `at` holds. They have no
// alignment.
UCCLEP_FN void store_scale_word(char* scales, uint32_t at, uint32_t all, uint64_t word) {
  for (uint32_t i = 0; i < 8 && at + i < all; ++i) scales[at + i] = static_cast<char>(word >> 8 * i);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
