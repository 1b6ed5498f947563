// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "proxy/immediate.hpp"

namespace ucclep::proxy {
namespace {

constexpr Immediate largest{static_cast<ImmKind>(7), 31, 4095, 4095};
static_assert(pack(largest) == ~uint32_t{0} && unpack(~uint32_t{0}) == largest && pack({}) == 0);
static_assert(max_chunks == 4095 && max_in_flight == 8);

TEST_CASE("immediate: every field at its limit alone comes back", "[immediate]") {
  for (const Immediate& imm : {Immediate{largest.kind, 0, 0, 0}, Immediate{{}, largest.epoch, 0, 0},
                               Immediate{{}, 0, largest.source, 0}, Immediate{{}, 0, 0, largest.value}, largest}) {
    CHECK(unpack(pack(imm)) == imm);
  }
  for (unsigned bit = 0; bit < 32; ++bit) CHECK(pack(unpack(uint32_t{1} << bit)) == uint32_t{1} << bit);
}

TEST_CASE("immediate: what a chunk, a header, a word and a message say", "[immediate]") {
  const Immediate chunk = chunk_arrives(Kind::combine, 32 * 7 + 5, 4095, 4095);
  CHECK(chunk == Immediate{ImmKind::combine, 5, 4095, 4095});
  const Immediate header = header_arrives(Kind::combine, 32 * 7 + 5, 1, 4095);
  CHECK(header == Immediate{ImmKind::header_combine, 5, 1, 4095});
  const Immediate word = word_moves(consumed_word(Kind::dispatch), 4096 * 3 + 17, 12);
  CHECK(word == Immediate{ImmKind::word, 1, 12, 17});
  const Immediate signal = message_arrives(4096 * 5 + 9, 4095, true);
  CHECK(signal == Immediate{ImmKind::message, 1, 4095, 9});
  CHECK(message_arrives(4095, 0, false) == Immediate{ImmKind::message, 0, 0, 4095});
  CHECK(word_moves(Word::detached, 1, 3) == Immediate{ImmKind::word, 5, 3, 1});
  CHECK(consumed_word(Kind::update) == Word::consumed_update);
  CHECK(consumed_word(Kind::combine) == Word::consumed_combine);
  // Into memory that kernels read; what is not known for a signal message may do so.
  for (const Immediate& imm : {chunk, header, message_arrives(1, 0, false), Immediate{ImmKind::message, 2, 0, 1}}) {
    CHECK(brings_bytes(imm));
  }
  CHECK_FALSE(brings_bytes(word));
  CHECK_FALSE(brings_bytes(signal));
}

}  // namespace
}  // namespace ucclep::proxy
