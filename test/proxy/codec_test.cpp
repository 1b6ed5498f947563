// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "proxy/command_limits.hpp"
#include "ucclep/device/layout/command.hpp"

namespace ucclep {
namespace {

namespace f = command_field;

constexpr uint64_t parities[] = {0, uint64_t{1} << 63};

// All fields at their limits: no bit is left over, and none is missing.
constexpr CommandFields largest = {static_cast<uint32_t>(f::Epoch::largest),
                                   static_cast<uint32_t>(f::Row::largest),
                                   static_cast<uint32_t>(f::Units::largest* f::unit_bytes),
                                   static_cast<uint16_t>(f::Destination::largest),
                                   static_cast<uint16_t>(f::Rows::largest),
                                   static_cast<CommandOp>(f::Operation::largest),
                                   static_cast<uint8_t>(f::Kind::largest),
                                   static_cast<uint8_t>(f::Flags::largest)};
constexpr Command command(const CommandFields& fields) {
  return fields;
}
static_assert(command(largest).in_slot(0).value == ~uint64_t{0} >> 1 &&
              command(largest).in_slot(0).epoch == ~uint64_t{0} >> 1);
static_assert(command(largest).fields() == largest && Command().fields() == CommandFields());
static_assert(fits(largest) && fits({}));
static_assert(command({.destination = 7, .operation = CommandOp::detach}).fields() ==
              CommandFields{.destination = 7, .operation = static_cast<CommandOp>(6)});

void comes_back(const CommandFields& fields) {
  const Command command = fields;
  for (uint64_t parity : parities) {
    const Packet slot = command.in_slot(parity);
    const Command again = Command::of_slot(slot, parity);
    CHECK(again.is_whole());
    CHECK(again == command);
    CHECK(again.fields() == fields);
    CHECK_FALSE(Command::of_slot(slot, parity ^ parities[1]).is_whole());
  }
}

TEST_CASE("fifo: each field alone at its limits comes back, and no other field changes", "[codec]") {
  CommandFields c;
  c.epoch = largest.epoch, comes_back(c), c = {};
  c.row = largest.row, comes_back(c), c = {};
  c.bytes = largest.bytes, comes_back(c), c = {};
  c.destination = largest.destination, comes_back(c), c = {};
  c.rows = largest.rows, comes_back(c), c = {};
  c.operation = largest.operation, comes_back(c), c = {};
  c.kind = largest.kind, comes_back(c), c = {};
  c.flags = largest.flags, comes_back(c), c = {};
  comes_back(largest);
  comes_back({});
}

TEST_CASE("fifo: every single bit of a command is one bit of its slot", "[codec]") {
  for (unsigned bit = 0; bit < 126; ++bit) {
    Packet slot{};
    (bit < 63 ? slot.value : slot.epoch) = uint64_t{1} << bit % 63;
    const CommandFields fields = Command::of_slot(slot, 0).fields();
    CHECK(fits(fields));
    const Packet again = command(fields).in_slot(0);
    CHECK(again.value == slot.value);
    CHECK(again.epoch == slot.epoch);
  }
}

TEST_CASE("fifo: a value beyond its field does not fit", "[codec]") {
  const auto beyond = [](auto change) {
    CommandFields c;
    change(c);
    return !fits(c);
  };
  CHECK(beyond([](CommandFields& c) { c.row = largest.row + 1; }));
  CHECK(beyond([](CommandFields& c) { c.bytes = largest.bytes + 16; }));
  CHECK(beyond([](CommandFields& c) { c.bytes = 8; }));
  CHECK(beyond([](CommandFields& c) { ++(c.destination = largest.destination); }));
  CHECK(beyond([](CommandFields& c) { ++(c.rows = largest.rows); }));
  CHECK(beyond([](CommandFields& c) { ++(c.kind = largest.kind); }));
}

TEST_CASE("fifo: a group that a command cannot serve is refused with what is too much", "[codec]") {
  const proxy::CommandDemand max{4096, 1 << 24, 16383, 16ull * ((1 << 25) - 1)};
  proxy::check_command_limits(max);
  const auto message = [&](uint64_t proxy::CommandDemand::* field) {
    proxy::CommandDemand demand = max;
    ++(demand.*field);
    try {
      proxy::check_command_limits(demand);
    } catch (const Error& error) {
      CHECK(error.code() == ucclEpNotSupported);
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  CHECK(message(&proxy::CommandDemand::ranks) ==
        "the group needs 4097 ranks, but a command for the network holds at most 4096");
  CHECK_THAT(message(&proxy::CommandDemand::places), Catch::Contains("16777217 places"));
  CHECK_THAT(message(&proxy::CommandDemand::rows_per_command), Catch::Contains("16384 rows"));
  CHECK_THAT(message(&proxy::CommandDemand::bytes_per_command), Catch::Contains("536870897 bytes"));
}

}  // namespace
}  // namespace ucclep
