// SPDX-License-Identifier: Apache-2.0
// What the proxy threads of a rank say of arrivals (P8, P9), and of peers that part (P12). Each word has one writer,
// the proxy thread to which its rank belongs, and only grows. The words lie in host memory; lanes that wait look at
// them in turn (protocol/by_network.hpp).
//
// clang-format off
// | who releases                   | who acquires                | scope  | what is ordered                                  |
// |--------------------------------|-----------------------------|--------|--------------------------------------------------|
// | proxy: store of a progress     | load_acquire of the word    | system | header and rows of which the word says that they |
// |   word                         |                             |        |   are here before their readers                  |
// | proxy: store of a consumed     | load_acquire of the word    | system | the peer's last read of a slot before the next   |
// |   word                         |                             |        |   write into it, and into what it was sent from  |
// | the warp that has read:        | RingReader::poll            | system | the same at the other end: reads here before the |
// |   order_before_push            |                             |        |   peer hears that they are over                  |
// | proxy: store of a detached     | load_acquire of the word    | system | the NIC's last read of what was put out for the  |
// |   word                         |                             |        |   rank before the next write there               |
// | proxy: store of an evicted     | load_acquire of the word    | system | nothing: what came before counts by its own      |
// |   word                         |                             |        |   words                                          |
// clang-format on
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

// Of what one source sends in one operation.
struct Progress {
  uint64_t seq = 0;
  bool announced = false;  // the header is here
  bool complete = false;   // and so are all chunks that it announces
  uint32_t below = 0;      // chunks from the first on, without a gap

  static constexpr unsigned below_bits = 13, announced_bit = 13, complete_bit = 14, seq_shift = 15;
  UCCLEP_HD constexpr uint64_t word() const {
    return seq << seq_shift | uint64_t{complete} << complete_bit | uint64_t{announced} << announced_bit | below;
  }
  static UCCLEP_HD constexpr Progress of_word(uint64_t word) {
    return {word >> seq_shift, (word >> announced_bit & 1) != 0, (word >> complete_bit & 1) != 0,
            static_cast<uint32_t>(word & ((1u << below_bits) - 1))};
  }
  friend constexpr bool operator==(const Progress&, const Progress&) = default;
};

// Of a group. Passed to kernels by value; memory that was never written is zero.
struct Arrivals {
  uint64_t* progress;  // [kind][seq % in_flight][source]
  uint64_t* consumed;  // [kind][rank]: the last operation of the kind that the rank has finished reading
  uint64_t* evicted;   // [rank]: 1: the rank has masked this one
  uint64_t* detached;  // [rank]: 1: CommandOp::detach has been carried out: the NIC reads nothing more for the rank
  uint32_t ranks, in_flight;

  // All of them, one behind the other.
  static UCCLEP_HD constexpr Arrivals in(uint64_t* words, uint32_t ranks, uint32_t in_flight) {
    uint64_t* const consumed = words + progress_words(ranks, in_flight);
    uint64_t* const evicted = consumed + consumed_words(ranks);
    return {words, consumed, evicted, evicted + ranks, ranks, in_flight};
  }
  static UCCLEP_HD constexpr uint64_t words(uint32_t ranks, uint32_t in_flight) {
    return progress_words(ranks, in_flight) + consumed_words(ranks) + 2 * uint64_t{ranks};
  }
  static UCCLEP_HD constexpr uint64_t progress_words(uint32_t ranks, uint32_t in_flight) {
    return uint64_t{num_kinds} * in_flight * ranks;
  }
  static UCCLEP_HD constexpr uint64_t consumed_words(uint32_t ranks) { return uint64_t{num_kinds} * ranks; }
  UCCLEP_HD constexpr uint64_t* progress_of(Kind kind, uint64_t seq, uint32_t source) const {
    return progress + (static_cast<uint64_t>(kind) * in_flight + seq % in_flight) * ranks + source;
  }
  UCCLEP_HD constexpr uint64_t* consumed_of(Kind kind, uint32_t rank) const {
    return consumed + static_cast<uint64_t>(kind) * ranks + rank;
  }
};

}  // namespace ucclep
