// SPDX-License-Identifier: Apache-2.0
// What every transport has to do: bytes arrive where they were sent, with the right immediate, and not before them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "base/deadline.hpp"
#include "support/test_env.hpp"
#include "transport/payload.hpp"

namespace ucclep::test {
namespace {

constexpr uint32_t imm_of(int source, uint32_t number) {
  return static_cast<uint32_t>(source) << 24 | number;
}

// The window is two halves: what this member sends, and what it receives, a part of it for each source.
struct Halves {
  Halves(Member& member, uint64_t window_bytes)
      : me(member), part(window_bytes / 2 / static_cast<uint64_t>(member.count()) / 64 * 64) {}
  uint64_t out(int peer) const { return static_cast<uint64_t>(peer) * part; }
  uint64_t in(int source) const { return static_cast<uint64_t>(me.count() + source) * part; }
  Member& me;
  uint64_t part;
};

void exchange_of_size(Member& me, uint64_t window_bytes, uint64_t bytes, uint32_t round) {
  const Halves halves(me, window_bytes);
  const auto seen_before = me.arrived().size();
  const bool source_known = me.endpoint().traits().reports_source == 1;
  const bool length_known = me.endpoint().traits().reports_length == 1;
  me.on_arrival = [&](const Event& event) {
    const int source = static_cast<int>(event.imm >> 24);
    check((event.imm & 0xffffff) == round && source < me.count(), fmt::format("a strange immediate {:#x}", event.imm));
    check(event.peer == (source_known ? static_cast<uint32_t>(source) : UCCLEP_UNKNOWN_PEER), "a wrong source");
    check(event.bytes == (length_known ? bytes : UCCLEP_UNKNOWN_LENGTH), "a wrong length");
    check_payload(me.window() + halves.in(source), event.imm, bytes);
  };
  me.barrier();
  for (int peer = 0; peer < me.count(); ++peer) {
    const uint32_t imm = imm_of(me.rank(), round);
    fill_payload(me.window() + halves.out(peer), imm, bytes);
    me.send(peer, Member::with_imm(me.write(peer, halves.out(peer), halves.in(me.rank()), bytes), imm));
  }
  me.finish();
  const auto all = seen_before + static_cast<size_t>(me.count());
  me.until([&] { return me.arrived().size() == all; }, fmt::format("arrivals of {} bytes", bytes));
  me.barrier();
}

std::byte pad_byte = std::byte{0x5a};

}  // namespace

TEST_CASE("transport: bytes of every size arrive from all peers with their immediates", "[transport]") {
  TeamOptions options;
  options.members = 3;
  options.window_bytes = 8 << 20;
  run_team(options, [&](Member& me) {
    const auto& traits = me.endpoint().traits();
    check(traits.imm_bits >= 32 && traits.sends > 0 && traits.receives > 0 && traits.max_message > 0, "poor traits");
    const uint64_t max = std::min<uint64_t>(traits.max_message, 1 << 20);
    uint32_t round = 0;
    for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{traits.max_inline}, uint64_t{traits.max_inline} + 1,
                           uint64_t{63}, uint64_t{7168}, uint64_t{65536}, max}) {
      exchange_of_size(me, options.window_bytes, bytes, round++);
    }
  });
}

TEST_CASE("transport: nothing beside the bytes of a write changes", "[transport]") {
  run_team([](Member& me) {
    const int peer = 1 - me.rank();
    constexpr uint64_t at = 10000, bytes = 333, around = 512;
    std::fill_n(me.window() + at - around, bytes + 2 * around, pad_byte);
    fill_payload(me.window() + 500000, 7, bytes);
    me.barrier();
    me.send(peer, Member::with_imm(me.write(peer, 500000, at, bytes), imm_of(me.rank(), 1)));
    me.until([&] { return me.arrived().size() == 1; }, "the write");
    check_payload(me.window() + at, 7, bytes);
    for (uint64_t i = 0; i < around; ++i) {
      check(me.window()[at - 1 - i] == pad_byte && me.window()[at + bytes + i] == pad_byte, "a byte beside changed");
    }
    me.finish();
    me.barrier();
  });
}

TEST_CASE("transport: thousands of writes in both directions, a chain at a time", "[transport]") {
  constexpr uint64_t bytes = 320;
  const uint32_t writes = reduced() ? 500 : 3000;
  TeamOptions options;
  options.window_bytes = (2 * writes + 1) * 4 * bytes;
  run_team(options, [&](Member& me) {
    const Halves halves(me, options.window_bytes);
    me.on_arrival = [&](const Event& event) {
      const int source = static_cast<int>(event.imm >> 24);
      const uint64_t number = event.imm & 0xffffff;
      check_payload(me.window() + halves.in(source) + number * bytes, event.imm, bytes);
    };
    const int peer = 1 - me.rank();
    for (uint32_t i = 0; i < writes; ++i) {
      fill_payload(me.window() + halves.out(peer) + i * bytes, imm_of(me.rank(), i), bytes);
    }
    me.barrier();
    for (uint32_t i = 0; i < writes; ++i) {
      const auto operation = me.write(peer, halves.out(peer) + i * bytes, halves.in(me.rank()) + i * bytes, bytes);
      me.send(peer, Member::with_imm(operation, imm_of(me.rank(), i)));
      check(me.unfinished() <= me.endpoint().traits().sends, "more operations are unfinished than were granted");
    }
    me.finish();
    me.until([&] { return me.arrived().size() == writes; }, "all writes");
    check(me.dones == writes, "a completion is missing");
    me.barrier();
  });
}

TEST_CASE("transport: post takes what has room, and the rest later", "[transport]") {
  TeamOptions options;
  options.sends = 16;
  run_team(options, [&](Member& me) {
    const int peer = 1 - me.rank();
    constexpr uint32_t chain = 100;
    std::vector<transport::Operation> operations;
    for (uint32_t i = 0; i < chain; ++i) {
      operations.push_back(Member::with_imm(me.write(peer, 0, 4096, 64), imm_of(me.rank(), i)));
    }
    me.barrier();
    const uint32_t granted = me.endpoint().traits().sends;
    uint32_t max = 0;
    for (uint32_t next = 0; next < chain;) {
      next += me.send_chain(peer, std::span(operations).subspan(next));
      max = std::max(max, static_cast<uint32_t>(me.unfinished()));
      me.poll();
    }
    check(max <= granted, "more operations were taken than were granted");
    me.finish();
    me.until([&] { return me.arrived().size() == chain; }, "the chain");
    me.barrier();
  });
}

TEST_CASE("transport: reads fetch what peers have, and what this endpoint itself has", "[transport]") {
  run_team([](Member& me) {
    constexpr uint64_t bytes = 40000;
    fill_payload(me.window(), imm_of(me.rank(), 0), bytes);
    me.barrier();
    for (int peer = 0; peer < me.count(); ++peer) {
      transport::Operation read = me.write(peer, 500000, 0, bytes);
      read.kind = UCCLEP_OPERATION_READ;
      me.send(peer, read);
      me.finish();
      check_payload(me.window() + 500000, imm_of(peer, 0), bytes);
    }
    me.barrier();
  });
}

TEST_CASE("transport: writes without an immediate arrive and are not announced", "[transport]") {
  run_team([](Member& me) {
    constexpr uint64_t bytes = 3000;
    const int peer = 1 - me.rank();
    fill_payload(me.window(), imm_of(me.rank(), 0), bytes);
    me.send(peer, me.write(peer, 0, 200000, bytes));
    me.finish();
    // Read back until it is there: no order between the two is promised.
    transport::Operation read = me.write(peer, 500000, 200000, bytes);
    read.kind = UCCLEP_OPERATION_READ;
    me.until(
        [&] {
          me.send(peer, read);
          me.finish();
          return std::memcmp(me.window() + 500000, me.window(), bytes) == 0;
        },
        "a plain write");
    me.barrier();
    check(me.arrived().empty(), "a write without an immediate was announced");
  });
}

TEST_CASE("transport: a receiver that does not poll holds the senders back and loses nothing", "[transport]") {
  TeamOptions options;
  options.sends = 64;
  options.receives = 64;
  options.timeout_ms = 60000;
  run_team(options, [&](Member& me) {
    constexpr uint32_t writes = 2000;
    if (me.rank() == 0) {
      uint32_t posted = 0;
      const auto post_all = [&](int64_t quiet_ms) {
        // Until nothing has been taken for a while: the receiver sleeps, or all is posted.
        Deadline quiet = Deadline::after_ms(quiet_ms);
        while (posted < writes && !quiet.expired()) {
          const auto operation = Member::with_imm(me.write(1, 0, 4096, 64), imm_of(0, posted));
          if (me.send_chain(1, std::span(&operation, 1)) == 1) {
            ++posted;
            quiet = Deadline::after_ms(quiet_ms);
          }
          me.poll();
        }
      };
      post_all(200);
      me.post(0);
      me.until(
          [&] {
            post_all(1);
            return posted == writes;
          },
          "the receiver");
      me.finish();
    } else {
      me.sleep_until_word(0);
      me.until([&] { return me.arrived().size() == writes; }, "all that was held back");
    }
    me.barrier();
  });
}

TEST_CASE("transport: a caller with room for one completion gets all of both kinds", "[transport]") {
  run_team([](Member& me) {
    const int peer = 1 - me.rank();
    me.poll_room = 1;
    for (uint32_t i = 0; i < 200; ++i) {
      me.send(peer, Member::with_imm(me.write(peer, 0, 4096, 8), imm_of(me.rank(), i)));
    }
    me.finish();
    me.until([&] { return me.arrived().size() == 200; }, "arrivals");
    me.barrier();
  });
}

}  // namespace ucclep::test
