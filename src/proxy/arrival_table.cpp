// SPDX-License-Identifier: Apache-2.0
#include "proxy/arrival_table.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"

namespace ucclep::proxy {
namespace {

constexpr uint32_t word_bits = 64;

const ArrivalShape& checked(const ArrivalShape& shape) {
  const auto check = [](const char* what, uint32_t value, uint32_t max) {
    if (value > max) {
      fail(ucclEpNotSupported, "the group needs {} {}, but the network's immediate can name at most {}", value, what,
           max);
    }
  };
  check("ranks", shape.ranks, max_ranks);
  check("chunks between two ranks", shape.chunks, max_chunks);
  check("operations in flight", shape.in_flight, max_in_flight);
  return shape;
}

}  // namespace

ArrivalTable::ArrivalTable(const ArrivalShape& shape)
    : shape_(checked(shape)),
      words_((shape.chunks + word_bits - 1) / word_bits),
      slots_(size_t{num_kinds} * shape.ranks * shape.in_flight),
      bits_(slots_.size() * words_) {}

Arrival ArrivalTable::arrive(const Immediate& imm) {
  const auto what = static_cast<uint32_t>(imm.kind);
  const bool is_header = what >= num_kinds;
  const uint32_t values = is_header ? shape_.chunks + 1 : shape_.chunks;
  if (what >= 2 * num_kinds || imm.source >= shape_.ranks || imm.value >= values) {
    ++foreign_;
    return Arrival::foreign;
  }
  const auto kind = static_cast<Kind>(what % num_kinds);
  const uint64_t seq = seq_of(kind, imm.epoch);
  if (!is_under_way(kind, seq)) {
    ++stale_;
    return Arrival::stale;
  }
  return is_header ? expect(kind, imm.source, seq, imm.value) : set(imm, seq);
}

uint64_t ArrivalTable::seq_of(Kind kind, uint32_t epoch) const {
  const uint64_t consumed = consumed_[static_cast<uint32_t>(kind)];
  return consumed + (epoch - consumed) % imm_epochs;
}

Arrival ArrivalTable::set(const Immediate& chunk, uint64_t seq) {
  const auto kind = static_cast<Kind>(chunk.kind);
  const Slot& slot = open(kind, chunk.source, seq);
  if (chunk.value >= slot.expected) {
    ++foreign_;
    return Arrival::foreign;
  }
  const size_t at = index(kind, chunk.source, seq);
  uint64_t& word = bitmap(at)[chunk.value / word_bits];
  const uint64_t bit = uint64_t{1} << chunk.value % word_bits;
  if ((word & bit) != 0) {
    ++repeated_;
    return Arrival::repeated;
  }
  word |= bit;
  if (chunk.value == slot.below) {
    advance(at);
  } else {
    ++early_;
    deepest_ = std::max<uint64_t>(deepest_, chunk.value - slot.below);
  }
  return Arrival::fresh;
}

Arrival ArrivalTable::expect(Kind kind, uint32_t source, uint64_t seq, uint32_t chunks) {
  Slot& slot = open(kind, source, seq);
  if (slot.expected != unknown) {
    ++repeated_;
    return Arrival::repeated;
  }
  slot.expected = chunks;
  drop_beyond(index(kind, source, seq));
  return Arrival::fresh;
}

void ArrivalTable::consume(Kind kind, uint64_t seq) {
  uint64_t& consumed = consumed_[static_cast<uint32_t>(kind)];
  consumed = std::max(consumed, seq);
}

Progress ArrivalTable::progress(Kind kind, uint32_t source, uint64_t seq) const {
  const Slot& slot = slots_[index(kind, source, seq)];
  if (slot.seq != seq) return {seq, false, false, 0};
  return {seq, slot.expected != unknown, slot.below >= slot.expected, slot.below};
}

bool ArrivalTable::is_under_way(Kind kind, uint64_t seq) const {
  const uint64_t consumed = consumed_[static_cast<uint32_t>(kind)];
  return seq > consumed && seq - consumed <= shape_.in_flight;
}

size_t ArrivalTable::index(Kind kind, uint32_t source, uint64_t seq) const {
  return (size_t{static_cast<uint32_t>(kind)} * shape_.ranks + source) * shape_.in_flight + seq % shape_.in_flight;
}

// What the slot held is N operations old, and so consumed.
ArrivalTable::Slot& ArrivalTable::open(Kind kind, uint32_t source, uint64_t seq) {
  const size_t at = index(kind, source, seq);
  Slot& slot = slots_[at];
  if (slot.seq != seq) {
    slot = {seq, 0, unknown};
    std::fill_n(bitmap(at), words_, 0);
  }
  return slot;
}

// What came before the header, and is not in it.
void ArrivalTable::drop_beyond(size_t index) {
  Slot& slot = slots_[index];
  slot.below = std::min(slot.below, slot.expected);
  for (uint32_t first = slot.expected; first < shape_.chunks; first = (first / word_bits + 1) * word_bits) {
    uint64_t& word = bitmap(index)[first / word_bits];
    const uint64_t kept = (uint64_t{1} << first % word_bits) - 1;
    foreign_ += static_cast<uint64_t>(std::popcount(word & ~kept));
    word &= kept;
  }
}

// Past all chunks that follow without a gap.
void ArrivalTable::advance(size_t index) {
  Slot& slot = slots_[index];
  const uint64_t* words = bitmap(index);
  while (slot.below < shape_.chunks) {
    const uint32_t offset = slot.below % word_bits;
    const auto run = static_cast<uint32_t>(std::countr_one(words[slot.below / word_bits] >> offset));
    slot.below += run;
    if (run < word_bits - offset) return;
  }
}

}  // namespace ucclep::proxy
