// SPDX-License-Identifier: Apache-2.0
// A command from a kernel to the proxy threads of its rank (P10): 16 bytes in two halves, and how they are told from
// those that lay in the same slot of the ring before. No address: the proxy derives both from the fields.
//
// clang-format off
//   field        half  bits    largest        why so many
//   epoch        0     0..31   all of 32      the operation's seq, truncated; the proxy knows the rest
//   destination  0     32..43  4095           P8: 4096 ranks
//   lane         0     44..47  15             connections to one destination
//   kind         0     48..50  7              P8: kinds of an immediate
//   flags        0     51..58  8 bits         meant for the proxy alone
//   operation    0     59..62  15
//   parity       0     63                     of the lap
//   row          1     0..23   16777215       first place, slot or chunk of the range
//   rows         1     24..37  16383          how many of them
//   units        1     38..62  33554431       16 bytes each: 512 MiB
//   parity       1     63                     the same once more: halves of two laps are no command
// clang-format on
//
// Who makes commands keeps their fields within these limits: a group that could exceed one is refused when it is
// created (src/host/proxy/command_limits.hpp). Nothing is masked here.
#pragma once
#include "ucclep/device/arch/arch.hpp"
#include "ucclep/device/layout.hpp"

namespace ucclep {

enum class CommandOp : uint8_t {
  none = 0,    // nothing to do
  put = 1,     // rows to their places at the destination, then the arrival of their chunk
  signal = 2,  // an arrival alone
};

struct Command {
  uint32_t epoch = 0;
  uint32_t row = 0;
  uint32_t bytes = 0;  // of the whole range, a multiple of 16
  uint16_t destination = 0;
  uint16_t rows = 0;
  CommandOp operation = CommandOp::none;
  uint8_t kind = 0, lane = 0, flags = 0;

  friend constexpr bool operator==(const Command&, const Command&) = default;
};

// The table above.
namespace command_field {

// Of `bits` bits from `shift` on, in one half.
template <unsigned in_half, unsigned from, unsigned wide>
struct Field {
  static constexpr unsigned half = in_half, shift = from, bits = wide, end = from + wide;
  static constexpr uint64_t largest = (uint64_t{1} << bits) - 1;
  static UCCLEP_HD constexpr uint64_t put(uint64_t value) { return value << shift; }
  static constexpr uint64_t get(const Packet& slot) { return (half == 0 ? slot.value : slot.epoch) >> shift & largest; }
};

using Epoch = Field<0, 0, 32>;
using Destination = Field<0, 32, 12>;
using Lane = Field<0, 44, 4>;
using Kind = Field<0, 48, 3>;
using Flags = Field<0, 51, 8>;
using Operation = Field<0, 59, 4>;
using Row = Field<1, 0, 24>;
using Rows = Field<1, 24, 14>;
using Units = Field<1, 38, 25>;
constexpr unsigned parity_shift = 63;
constexpr uint32_t unit_bytes = 16;

// Each begins where the one before it ends, and the last ends at the parity.
static_assert(Destination::shift == Epoch::end && Lane::shift == Destination::end && Kind::shift == Lane::end &&
              Flags::shift == Kind::end && Operation::shift == Flags::end && Operation::end == parity_shift);
static_assert(Rows::shift == Row::end && Units::shift == Rows::end && Units::end == parity_shift);
static_assert(Destination::largest == max_ranks - 1);

}  // namespace command_field

// Whether every field has room for its value: true of whatever a group that was not refused can ask for.
constexpr bool fits(const Command& c) {
  namespace f = command_field;
  return c.destination <= f::Destination::largest && c.lane <= f::Lane::largest && c.kind <= f::Kind::largest &&
         static_cast<uint64_t>(c.operation) <= f::Operation::largest && c.row <= f::Row::largest &&
         c.rows <= f::Rows::largest && c.bytes % f::unit_bytes == 0 && c.bytes / f::unit_bytes <= f::Units::largest;
}

// A ring has 1 << capacity_log2 slots; the command at `position` lies in slot position % capacity. Memory that was
// never written is zero, so the parity of the first lap is 1.
UCCLEP_HD constexpr uint64_t lap_parity(uint64_t position, uint32_t capacity_log2) {
  return (~(position >> capacity_log2) & 1) << command_field::parity_shift;
}

UCCLEP_HD constexpr Packet encode(const Command& c, uint64_t parity) {
  namespace f = command_field;
  return {f::Epoch::put(c.epoch) | f::Destination::put(c.destination) | f::Lane::put(c.lane) | f::Kind::put(c.kind) |
              f::Flags::put(c.flags) | f::Operation::put(static_cast<uint64_t>(c.operation)) | parity,
          f::Row::put(c.row) | f::Rows::put(c.rows) | f::Units::put(c.bytes / f::unit_bytes) | parity};
}

// True when both halves are of the lap whose parity is given.
constexpr bool is_of_lap(const Packet& slot, uint64_t parity) {
  return ((slot.value ^ parity) | (slot.epoch ^ parity)) >> command_field::parity_shift == 0;
}

constexpr Command decode(const Packet& slot) {
  namespace f = command_field;
  Command c;
  c.epoch = static_cast<uint32_t>(f::Epoch::get(slot));
  c.row = static_cast<uint32_t>(f::Row::get(slot));
  c.bytes = static_cast<uint32_t>(f::Units::get(slot)) * f::unit_bytes;
  c.destination = static_cast<uint16_t>(f::Destination::get(slot));
  c.rows = static_cast<uint16_t>(f::Rows::get(slot));
  c.operation = static_cast<CommandOp>(f::Operation::get(slot));
  c.kind = static_cast<uint8_t>(f::Kind::get(slot));
  c.lane = static_cast<uint8_t>(f::Lane::get(slot));
  c.flags = static_cast<uint8_t>(f::Flags::get(slot));
  return c;
}

}  // namespace ucclep
