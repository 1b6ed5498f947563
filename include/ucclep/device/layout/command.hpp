// SPDX-License-Identifier: Apache-2.0
// A command from a kernel to the proxy threads of its rank (P10): 16 bytes in two halves, and how they are told from
// those that lay in the same slot of the ring before. No address: the proxy derives both from the fields.
//
// clang-format off
//   field        half  bits    largest        why so many
//   epoch        0     0..31   all of 32      the operation's seq, truncated; the proxy knows the rest
//   destination  0     32..43  4095           P8: 4096 ranks
//   kind         0     44..46  7              of an operation
//   flags        0     47..54  8 bits         meant for the proxy alone
//   operation    0     55..62  255
//   parity       0     63                     of the lap
//   row          1     0..23   16777215       first place of the range
//   rows         1     24..37  16383          how many of them
//   units        1     38..62  33554431       16 bytes each: 512 MiB
//   parity       1     63                     the same once more: halves of two laps are no command
// clang-format on
//
// Who makes commands keeps their fields within these limits: a group that could exceed one is refused when it is
// created (src/proxy/command_limits.hpp). Nothing is masked here.
#pragma once
#include <cstdint>
#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

enum class CommandOp : uint8_t {
  none = 0,  // nothing to do
  put = 1,   // `rows` rows, from the place `row` on and within one chunk, of `bytes` together. A chunk leaves when all
             // its rows have been put
  header = 2,    // `row` rows come in all: the last chunk ends there. With `bytes` of the operation's header
  consumed = 3,  // all operations of the kind up to `epoch` have been read here
  // Of the channel, with the number of the message as epoch (layout/message.hpp):
  channel_put = 4,
  signal = 5,
  // This rank has masked the destination: no other field counts. Nothing that was put for it leaves from then on. Once
  // what had left is out of the NIC's hands the destination is notified, and Arrivals::detached says so here.
  detach = 6,
};

// Of a put, and of the header of such an operation: its rows go from node to node (HT), not from rank to rank.
constexpr uint8_t between_nodes_flag = 1;

struct CommandFields {
  uint32_t epoch = 0;
  uint32_t row = 0;
  uint32_t bytes = 0;  // of the whole range, a multiple of 16
  uint16_t destination = 0;
  uint16_t rows = 0;
  CommandOp operation = CommandOp::none;
  uint8_t kind = 0, flags = 0;

  friend constexpr bool operator==(const CommandFields&, const CommandFields&) = default;
};

// The table above.
namespace command_field {

// Of `bits` bits from `shift` on, in its half.
template <unsigned from, unsigned wide>
struct Field {
  static constexpr unsigned shift = from, bits = wide, end = from + wide;
  static constexpr uint64_t largest = (uint64_t{1} << bits) - 1;
  static UCCLEP_HD constexpr uint64_t put(uint64_t value) { return value << shift; }
  static UCCLEP_HD constexpr uint64_t get(uint64_t of_half) { return of_half >> shift & largest; }
};

// Half 0.
using Epoch = Field<0, 32>;
using Destination = Field<32, 12>;
using Kind = Field<44, 3>;
using Flags = Field<47, 8>;
using Operation = Field<55, 8>;
// Half 1.
using Row = Field<0, 24>;
using Rows = Field<24, 14>;
using Units = Field<38, 25>;
constexpr unsigned parity_shift = 63;
constexpr uint32_t unit_bytes = 16;

// Each begins where the one before it ends, and the last ends at the parity.
static_assert(Destination::shift == Epoch::end && Kind::shift == Destination::end && Flags::shift == Kind::end &&
              Operation::shift == Flags::end && Operation::end == parity_shift);
static_assert(Rows::shift == Row::end && Units::shift == Rows::end && Units::end == parity_shift);
static_assert(Destination::largest == max_ranks - 1);

}  // namespace command_field

// Whether every field has room for its value: true of whatever a group that was not refused can ask for.
UCCLEP_HD constexpr bool fits(const CommandFields& c) {
  namespace f = command_field;
  return c.destination <= f::Destination::largest && c.kind <= f::Kind::largest && c.row <= f::Row::largest &&
         c.rows <= f::Rows::largest && c.bytes % f::unit_bytes == 0 && c.bytes / f::unit_bytes <= f::Units::largest;
}

// The two halves without the parity. It stays packed until somebody asks for a field: taken apart into memory and put
// together again, it would wait for its own narrow stores at both ends of the ring.
class Command {
 public:
  constexpr Command() = default;
  UCCLEP_HD constexpr Command(const CommandFields& c)
      : low_(command_field::Epoch::put(c.epoch) | command_field::Destination::put(c.destination) |
             command_field::Kind::put(c.kind) | command_field::Flags::put(c.flags) |
             command_field::Operation::put(static_cast<uint64_t>(c.operation))),
        high_(command_field::Row::put(c.row) | command_field::Rows::put(c.rows) |
              command_field::Units::put(c.bytes / command_field::unit_bytes)) {}

  UCCLEP_HD constexpr uint32_t epoch() const { return static_cast<uint32_t>(command_field::Epoch::get(low_)); }
  UCCLEP_HD constexpr uint16_t destination() const {
    return static_cast<uint16_t>(command_field::Destination::get(low_));
  }
  UCCLEP_HD constexpr uint8_t kind() const { return static_cast<uint8_t>(command_field::Kind::get(low_)); }
  UCCLEP_HD constexpr uint8_t flags() const { return static_cast<uint8_t>(command_field::Flags::get(low_)); }
  UCCLEP_HD constexpr CommandOp operation() const {
    return static_cast<CommandOp>(command_field::Operation::get(low_));
  }
  UCCLEP_HD constexpr uint32_t row() const { return static_cast<uint32_t>(command_field::Row::get(high_)); }
  UCCLEP_HD constexpr uint16_t rows() const { return static_cast<uint16_t>(command_field::Rows::get(high_)); }
  UCCLEP_HD constexpr uint32_t bytes() const {
    return static_cast<uint32_t>(command_field::Units::get(high_)) * command_field::unit_bytes;
  }
  UCCLEP_HD constexpr CommandFields fields() const {
    return {epoch(), row(), bytes(), destination(), rows(), operation(), kind(), flags()};
  }

  // As it lies in a slot on a lap of this parity, and back. What comes back from a slot of another lap, in either half,
  // is no command.
  UCCLEP_HD constexpr Packet in_slot(uint64_t parity) const { return {low_ | parity, high_ | parity}; }
  static UCCLEP_HD constexpr Command of_slot(const Packet& slot, uint64_t parity) {
    Command c;
    c.low_ = slot.value ^ parity;
    c.high_ = slot.epoch ^ parity;
    return c;
  }
  UCCLEP_HD constexpr bool is_whole() const { return (low_ | high_) >> command_field::parity_shift == 0; }

  friend constexpr bool operator==(const Command&, const Command&) = default;

 private:
  uint64_t low_ = 0, high_ = 0;
};
static_assert(sizeof(Command) == sizeof(Packet));

// A ring has 1 << capacity_log2 slots; the command at `position` lies in slot position % capacity. Memory that was
// never written is zero, so the parity of the first lap is 1.
UCCLEP_HD constexpr uint64_t lap_parity(uint64_t position, uint32_t capacity_log2) {
  return (~(position >> capacity_log2) & 1) << command_field::parity_shift;
}

// The rings of a group, bulk ones first, then those for control. Passed to kernels by value.
struct Fifo {
  Packet* slots;                     // [rings][capacity], pinned host memory
  uint64_t* heads;                   // [rings][fifo_stride], device memory: the head, and a position of the reader's
  uint64_t* positions;               // [rings][fifo_stride], pinned host memory: all below has been read; and stalls
  uint32_t bulk_log2, control_log2;  // how many rings there are of each
  uint32_t capacity_log2;
  uint32_t high_water;  // capacity less what all lanes that may push at the same time push at once
  uint64_t timeout_ns;
  const uint32_t* abort_word;
};
constexpr uint32_t fifo_stride = 16;      // words: one line of 128 bytes for each ring
constexpr uint32_t fifo_seen_word = 1;    // in the head's line: no lane waits for it, many look at it
constexpr uint32_t fifo_stalls_word = 1;  // in the position's line: pushes that had to wait for the reader

// The ranks of a rail are alike modulo the size of a node, whatever that is: all bits of a number count.
UCCLEP_HD constexpr uint32_t fifo_hash(uint32_t value, uint32_t bits) {
  uint32_t mixed = value * 0x9e3779b1u;
  mixed ^= mixed >> 15;
  mixed *= 0x85ebca6bu;
  return static_cast<uint32_t>(uint64_t{mixed} >> (32 - bits));
}

// The highest bits of one hash, so that one proxy thread can own both of a destination's rings (ring_deal.hpp).
UCCLEP_HD constexpr uint32_t bulk_ring(const Fifo& fifo, uint32_t destination) {
  return fifo_hash(destination, fifo.bulk_log2);
}

UCCLEP_HD constexpr uint32_t control_ring(const Fifo& fifo, uint32_t destination) {
  return (1u << fifo.bulk_log2) + fifo_hash(destination, fifo.control_log2);
}

}  // namespace ucclep
