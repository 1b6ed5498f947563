// SPDX-License-Identifier: Apache-2.0
// Memory of a group in which kernels of users keep the copies of a row until the last one is there: combines of HT in
// EXPERT_MAJOR (ht_open_combine.hpp). Only one of a group is open at a time. In LL the handle has room for them
// (handle_layout.hpp).
#pragma once
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

// B is that of HT, L the local experts.
struct CopyTables {
  uint64_t in;      // u32 [R][B] how many copies of a received row there are so far
  uint64_t zeroed;  // bytes that begin as zero: what is above
  uint64_t homes;   // u32 [L][R * B] of a row in a zone: source rank * B + place
  uint64_t rows;    // const char* [R][B][K] the copies, experts ascending
  uint64_t bytes;

  static UCCLEP_HD constexpr CopyTables of(const GroupShape& shape) {
    constexpr uint64_t unit = 128;
    const uint64_t received = uint64_t{shape.ranks} * shape.ht_tokens;
    CopyTables t{};
    t.zeroed = t.homes = round_up(4 * received, unit);
    t.rows = t.homes + round_up(4 * received * shape.local_experts(), unit);
    t.bytes = t.rows + 8 * received * shape.top_k;
    return t;
  }
};

}  // namespace ucclep
