// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "raw_ring.hpp"

namespace ucclep {
namespace {

using proxy::RingReader;
using test::numbered;
using test::RawRing;

// Positions at which something turns over: the first lap, a change of parity, and where 32 bits would end.
const uint64_t starts[] = {0,
                           5,
                           7,
                           8,
                           9,
                           15,
                           16,
                           (uint64_t{1} << 32) - 9,
                           (uint64_t{1} << 32) - 8,
                           (uint64_t{1} << 32) - 1,
                           uint64_t{1} << 32,
                           (uint64_t{1} << 33) - 3,
                           (uint64_t{1} << 63) + 1};

TEST_CASE("fifo: commands come back in order over several laps, from any position", "[reader]") {
  for (uint64_t start : starts) {
    INFO("from position " << start);
    RawRing ring(3, start);
    RingReader reader(ring.memory(), 4, 3);
    CHECK(reader.poll().empty());
    uint64_t next = start;
    for (uint32_t round = 0; round < 30; ++round) {
      const uint64_t count = round % 8 + 1;  // up to the whole ring
      for (uint64_t i = 0; i < count; ++i) ring.store(next + i, numbered(1, static_cast<uint32_t>(next + i)));
      const uint64_t end = next + count;
      while (next < end) {
        const auto commands = reader.poll();
        REQUIRE_FALSE(commands.empty());
        for (const Command& command : commands) CHECK(command == numbered(1, static_cast<uint32_t>(next++)));
        reader.release(commands.size());
      }
      CHECK(reader.poll().empty());
      CHECK(ring.position() == end);
    }
  }
}

TEST_CASE("fifo: what was not released comes again, with what has come since", "[reader]") {
  RawRing ring(3, 6);
  RingReader reader(ring.memory(), 4, 1);
  for (uint64_t p = 6; p < 9; ++p) ring.store(p, numbered(1, static_cast<uint32_t>(p)));
  REQUIRE(reader.poll().size() == 3);
  reader.release(1);
  CHECK(ring.position() == 7);
  CHECK(reader.position() == 7);
  for (uint64_t p = 9; p < 13; ++p) ring.store(p, numbered(1, static_cast<uint32_t>(p)));
  auto commands = reader.poll();
  REQUIRE(commands.size() == 3);  // the batch's end; its front is not free before a poll that finds it full
  commands = reader.poll();
  REQUIRE(commands.size() == 4);
  for (uint32_t i = 0; i < 4; ++i) CHECK(commands[i] == numbered(1, 7 + i));
  commands = reader.poll();
  REQUIRE(commands.size() == 4);
  CHECK(commands[0] == numbered(1, 7));
  reader.release(4);
  commands = reader.poll();
  REQUIRE(commands.size() == 2);
  CHECK(commands[1] == numbered(1, 12));
}

TEST_CASE("fifo: the device hears of the position now and then, and at once when the ring is empty", "[reader]") {
  RawRing ring(4, 0);
  RingReader reader(ring.memory(), 2, 5);
  for (uint32_t i = 0; i < 8; ++i) ring.store(i, numbered(1, i));
  for (uint64_t heard : {0, 0, 6, 6}) {
    REQUIRE(reader.poll().size() == 2);
    reader.release(2);
    CHECK(ring.position() == heard);
  }
  CHECK(reader.poll().empty());
  CHECK(ring.position() == 8);
  ring.store(8, numbered(1, 8));
  REQUIRE(reader.poll().size() == 1);
  CHECK(ring.position() == 8);
  reader.release(1);
  CHECK(ring.position() == 9);
}

// The 16 bytes of a command may arrive as two halves, in either order, and much later.
TEST_CASE("fifo: half a command is none, whichever half has come", "[reader]") {
  for (uint64_t start : starts) {
    for (bool low_first : {true, false}) {
      INFO("position " << start << (low_first ? ", low half first" : ", high half first"));
      RawRing ring(3, start);
      RingReader reader(ring.memory(), 4, 1);
      const Command command = numbered(3, 77);
      const Packet whole = command.in_slot(lap_parity(start, 3));
      Packet& slot = ring.slot(start);
      (low_first ? slot.value : slot.epoch) = low_first ? whole.value : whole.epoch;
      CHECK(reader.poll().empty());
      slot = whole;
      const auto commands = reader.poll();
      REQUIRE(commands.size() == 1);
      CHECK(commands[0] == command);
    }
  }
}

// The same with the parity looked at in one half only: the torn command is taken for one, which the test above would
// not let pass.
TEST_CASE("fifo: with the parity in one half a torn command passes for a whole one", "[reader]") {
  const Command older = numbered(1, 1), newer = numbered(2, 2);
  const uint64_t before = lap_parity(0, 3), after = lap_parity(8, 3);
  const Packet torn{newer.in_slot(after).value, older.in_slot(before).epoch};
  const auto low_half_only = [](const Packet& slot, uint64_t parity) { return (slot.value ^ parity) >> 63 == 0; };
  CHECK(low_half_only(torn, after));
  CHECK_FALSE(Command::of_slot(torn, after).is_whole());
  CHECK_FALSE(Command::of_slot(torn, before).is_whole());
  const Command mixed = Command::of_slot({torn.value & ~after, torn.epoch}, 0);
  CHECK(mixed.destination() == newer.destination());
  CHECK(mixed.row() == older.row());
}

}  // namespace
}  // namespace ucclep
