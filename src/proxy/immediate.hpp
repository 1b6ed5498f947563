// SPDX-License-Identifier: Apache-2.0
// The 32 bits that travel with a write (P8): what arrived, of which operation, from whom. Some NICs say no source.
//
// clang-format off
//   field    bits    largest   what
//   kind     0..2    7         a chunk or the header of an operation of a kind, that a word moved on, or a message of
//                              the channel
//   epoch    3..7    31        seq of the operation, truncated; or which word; or whether the message is a signal message
//   source   8..19   4095      rank
//   value    20..31  4095      chunk; with a header how many chunks there are; or the word's value, truncated (P9); or
//                              the message's number, truncated
// clang-format on
#pragma once
#include <array>
#include <cstdint>

#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep::proxy {

// The first three are those of Kind: a chunk of that kind's operation. Then the headers of the three.
enum class ImmKind : uint8_t {
  update,
  dispatch,
  combine,
  header_update,
  header_dispatch,
  header_combine,
  word,
  message
};
static_assert(static_cast<uint32_t>(ImmKind::header_update) == num_kinds);

// `consumed` of each kind, how many data messages a receiver has dealt with, how many of the channel lie there without
// a gap, and 1 from a rank that has masked the receiver of the word: the last word that it sends.
enum class Word : uint8_t { consumed_update, consumed_dispatch, consumed_combine, credit, placed, detached };
constexpr uint32_t num_words = num_kinds + 3;

// A number of an operation for each kind.
using KindNumbers = std::array<uint64_t, num_kinds>;

constexpr uint32_t imm_epoch_bits = 5, imm_value_bits = 12;
constexpr uint32_t imm_epochs = 1u << imm_epoch_bits, imm_values = 1u << imm_value_bits;
// Epochs that can be under way, and those that can be mistaken for them, are 2N apart (P4).
constexpr uint32_t max_in_flight = imm_epochs / 4;
static_assert(num_words <= imm_epochs);
static_assert(max_chunks == imm_values - 1);  // a header's value counts them

struct Immediate {
  ImmKind kind = ImmKind::update;
  uint8_t epoch = 0;
  uint16_t source = 0;
  uint16_t value = 0;

  friend constexpr bool operator==(const Immediate&, const Immediate&) = default;
};

constexpr uint32_t pack(const Immediate& imm) {
  return static_cast<uint32_t>(imm.kind) | uint32_t{imm.epoch} << 3 | uint32_t{imm.source} << 8 |
         uint32_t{imm.value} << 20;
}

// What comes from the wire: every field is within its bits, and kind may be none of ImmKind.
constexpr Immediate unpack(uint32_t bits) {
  return {static_cast<ImmKind>(bits & 7), static_cast<uint8_t>(bits >> 3 & (imm_epochs - 1)),
          static_cast<uint16_t>(bits >> 8 & (max_ranks - 1)), static_cast<uint16_t>(bits >> 20)};
}

constexpr Immediate chunk_arrives(Kind kind, uint64_t seq, uint32_t source, uint32_t chunk) {
  return {static_cast<ImmKind>(kind), static_cast<uint8_t>(seq % imm_epochs), static_cast<uint16_t>(source),
          static_cast<uint16_t>(chunk)};
}
constexpr Immediate header_arrives(Kind kind, uint64_t seq, uint32_t source, uint32_t chunks) {
  return {static_cast<ImmKind>(num_kinds + static_cast<uint32_t>(kind)), static_cast<uint8_t>(seq % imm_epochs),
          static_cast<uint16_t>(source), static_cast<uint16_t>(chunks)};
}
constexpr Immediate word_moves(Word word, uint64_t value, uint32_t source) {
  return {ImmKind::word, static_cast<uint8_t>(word), static_cast<uint16_t>(source),
          static_cast<uint16_t>(value % imm_values)};
}
constexpr Immediate message_arrives(uint64_t number, uint32_t source, bool is_signal) {
  return {ImmKind::message, static_cast<uint8_t>(is_signal), static_cast<uint16_t>(source),
          static_cast<uint16_t>(number % imm_values)};
}
// Into memory that kernels read: rows, a header, a put. A word brings none, and signal messages are the proxies' to
// read.
constexpr bool brings_bytes(const Immediate& imm) {
  return imm.kind != ImmKind::word && imm != message_arrives(imm.value, imm.source, true);
}
constexpr Word consumed_word(Kind kind) {
  return static_cast<Word>(kind);
}

}  // namespace ucclep::proxy
