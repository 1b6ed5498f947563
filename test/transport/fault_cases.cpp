// SPDX-License-Identifier: Apache-2.0
// What goes wrong under way: each ends in an ERROR that names the peer, in time, and leaves other connections alone.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "support/test_env.hpp"
#include "transport/payload.hpp"

namespace ucclep::test {
namespace {

// The other peers still get what is sent to them, where they read nothing that they send (knock).
void check_connection(Member& me, int peer, uint32_t imm) {
  me.errors.clear();
  me.send(peer, Member::with_imm(me.write(peer, 0, 8192, 64), imm));
  me.finish();
}

// To member 1, each member to a place of its own.
transport::Operation knock(const Member& me) {
  return Member::with_imm(me.write(1, 0, 16384 * (1 + static_cast<uint64_t>(me.rank())), 7168), 1);
}

void check_error(const Event& error, int peer) {
  check(error.peer == static_cast<uint32_t>(peer) && error.kind == UCCLEP_COMPLETION_ERROR, "an ERROR of another peer");
  check(error.message.find("peer " + std::to_string(peer)) != std::string::npos,
        "the peer is not named: " + error.message);
}

}  // namespace

TEST_CASE("transport: an operation beyond its region breaks its connection and no other", "[transport]") {
  TeamOptions options;
  options.members = 3;
  run_team(options, [&](Member& me) {
    if (me.rank() == 0) {
      me.send(1, me.write(1, 0, options.window_bytes - 100, 200));
      const Event error = me.until_broken(1, "an operation beyond a region");
      check_error(error, 1);
      // What comes later ends in the same way.
      me.send(1, me.write(1, 0, 0, 64));
      me.until([&] { return me.unfinished() == 0; }, "an operation on a broken connection");
      check(me.errors.back().operation == UCCLEP_OPERATION_WRITE && me.errors.back().peer == 1, "it did not fail");
      check_connection(me, 2, 1);
    } else if (me.rank() == 2) {
      me.until([&] { return me.arrived().count(1) == 1; }, "the write to the other peer");
    }
    me.barrier();
  });
}

TEST_CASE("transport: an operation from beyond the local region ends in an ERROR", "[transport]") {
  TeamOptions options;
  run_team(options, [&](Member& me) {
    if (me.rank() == 0) {
      me.send(1, me.write(1, options.window_bytes - 100, 0, 200));
      check_error(me.until_broken(1, "an operation from beyond a region"), 1);
    }
    me.barrier();
  });
}

TEST_CASE("transport: a forged key is refused, or ends in an ERROR", "[transport]") {
  run_team([](Member& me) {
    if (me.rank() == 0) {
      // Not all bytes of a key need to matter.
      transport::Key forged = me.key(1);
      for (unsigned char& byte : forged.bytes) byte = static_cast<unsigned char>(byte ^ 0x55);
      transport::Operation operation = me.write(1, 0, 0, 64);
      bool imported = false;
      try {
        operation.remote_region = me.endpoint().import_region(1, forged);
        imported = true;
      } catch (const std::exception&) {
      }
      if (imported) {
        me.send(1, operation);
        check_error(me.until_broken(1, "a forged key"), 1);
      }
    }
    me.barrier();
  });
}

TEST_CASE("transport: a write to a region that its owner has taken back ends, and harms no other connection",
          "[transport]") {
  TeamOptions options;
  options.members = 3;
  options.timeout_ms = 3000;
  run_team(options, [](Member& me) {
    if (me.rank() == 1) me.endpoint().deregister_region(me.region());
    me.barrier();
    if (me.rank() == 0) {
      me.send(1, me.write(1, 0, 0, 64));
      me.until([&] { return me.unfinished() == 0; }, "a write to a region taken back");
      if (me.errors_are_certain()) check_error(me.until_broken(1, "a region taken back"), 1);
      check_connection(me, 2, 1);
    } else if (me.rank() == 2) {
      me.until([&] { return me.arrived().count(1) == 1; }, "the write to the other peer");
    }
    me.barrier();
  });
}

TEST_CASE("transport: a broken connection works again after both sides have connected anew", "[transport]") {
  TeamOptions options;
  run_team(options, [&](Member& me) {
    const int peer = 1 - me.rank();
    if (me.rank() == 0) {
      me.send(1, me.write(1, 0, options.window_bytes, 64));
      me.until_broken(1, "an operation beyond a region");
    }
    me.barrier();
    me.disconnect(peer);
    me.barrier();
    me.connect(peer);
    me.barrier();
    check_connection(me, peer, static_cast<uint32_t>(me.rank()));
    me.until([&] { return me.arrived().size() == 1; }, "a write after connecting anew");
    me.barrier();
  });
}

TEST_CASE("transport: what is unfinished when its connection is given up is not reported", "[transport]") {
  TeamOptions options;
  options.alone = {1};
  run_team(options, [](Member& me) {
    if (me.rank() == 0) {
      // Nobody connects at the other end: nothing of this can have ended.
      me.endpoint().connect(1, 0, me.address(1));
      const transport::Operation operation = Member::with_imm(me.write(0, 0, 4096, 0), 1);
      for (int i = 0; i < 10; ++i) me.send_chain(1, std::span(&operation, 1));
      me.disconnect(1);
      const uint64_t ended = me.dones;
      me.send(0, Member::with_imm(me.write(0, 0, 4096, 64), 7));
      me.until([&] { return me.arrived().size() == 1 && me.dones > ended; }, "a write to itself");
      for (int i = 0; i < 1000; ++i) me.poll();
      check(me.dones == ended + 1 && me.errors.empty(), "something of the old connection was reported");
    }
    me.barrier();
  });
}

TEST_CASE("transport: what is sent to a peer that connects seconds later arrives", "[transport][bounds]") {
  TeamOptions options;
  options.alone = {1};
  run_team(options, [](Member& me) {
    constexpr uint32_t writes = 20;
    const Deadline late = Deadline::after_ms(2500);
    if (me.rank() == 0) {
      me.endpoint().connect(1, 0, me.address(1));
      for (uint32_t i = 0; i < writes; ++i) me.send(1, Member::with_imm(me.write(0, 0, 0, 0), i));
      me.finish();
    } else {
      me.until([&] { return late.expired(); }, "the time to be late");
      me.connect(0);
      me.until([&] { return me.arrived().size() == writes; }, "what was sent before");
    }
    me.barrier();
  });
}

TEST_CASE("transport: a peer that closes its endpoint ends in an ERROR", "[transport][bounds]") {
  TeamOptions options;
  options.members = 3;
  options.timeout_ms = 3000;
  run_team(options, [](Member& me) {
    if (me.rank() == 1) {
      me.close();
    } else {
      check_error(me.send_until_broken(1, knock(me)), 1);
      check_connection(me, 2 - me.rank(), static_cast<uint32_t>(2 + me.rank()));
    }
    me.barrier();
  });
}

TEST_CASE("transport: a peer that is killed ends in an ERROR", "[transport][bounds]") {
  if (!members_are_processes()) return skip_case("members are threads");
  TeamOptions options;
  options.members = 3;
  options.timeout_ms = 3000;
  options.killed = {1};
  run_team(options, [](Member& me) {
    if (me.rank() == 1) raise(SIGKILL);
    check_error(me.send_until_broken(1, knock(me)), 1);
    // The survivors keep each other company until both have seen it.
    check_connection(me, 2 - me.rank(), static_cast<uint32_t>(2 + me.rank()));
    me.post(me.rank());
    me.wait_for_word(2 - me.rank());
  });
}

TEST_CASE("transport: a peer that does not poll for too long ends in an ERROR", "[transport][bounds]") {
  TeamOptions options;
  options.timeout_ms = 1000;
  options.sends = 64;
  options.receives = 64;
  run_team(options, [](Member& me) {
    if (me.rank() == 0) {
      me.barrier();
      const Event error = me.send_until_broken(1, Member::with_imm(me.write(1, 0, 4096, 65536), 1));
      check_error(error, 1);
      check(error.code == ucclEpTimeout, "not a timeout: " + error.message);
      me.post(0);
    } else {
      me.barrier();
      me.sleep_until_word(0);
    }
    me.close();
    me.barrier();
  });
}

TEST_CASE("transport: the address of an endpoint that is gone is refused, or ends in an ERROR", "[transport][bounds]") {
  TeamOptions options;
  options.timeout_ms = 3000;
  options.alone = {1};
  run_team(options, [](Member& me) {
    if (me.rank() == 1) me.close();
    me.barrier();
    if (me.rank() == 0) {
      bool connected = false;
      try {
        me.endpoint().connect(1, 0, me.address(1));
        connected = true;
      } catch (const std::exception&) {
      }
      // An immediate alone needs no region of the peer.
      if (connected) check_error(me.send_until_broken(1, Member::with_imm(me.write(0, 0, 0, 0), 1)), 1);
    }
    me.barrier();
  });
}

TEST_CASE("transport: a listener that hears strangers still serves its peers", "[transport]") {
  const std::string name = transport_under_test();
  if (name.find("tcp") == std::string::npos && name.find("net") == std::string::npos) {
    return skip_case("there is no listener");
  }
  run_team([](Member& me) {
    const int peer = 1 - me.rank();
    // The address ends with where the provider listens.
    sockaddr_in listener;
    check(me.address(peer).size() > sizeof(listener), "a short address");
    std::memcpy(&listener, &*me.address(peer).end() - sizeof(listener), sizeof(listener));
    if (listener.sin_family == AF_INET) {
      for (size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{100000}}) {
        const Fd stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const auto* where = reinterpret_cast<const sockaddr*>(&listener);
        check(connect(stranger.get(), where, sizeof(listener)) == 0, "nobody listens");
        const std::vector<char> noise(bytes, '\xa5');
        if (bytes > 0) send(stranger.get(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        me.barrier();
      }
    }
    check_connection(me, peer, static_cast<uint32_t>(me.rank()));
    me.until([&] { return me.arrived().size() == 1; }, "a write after the strangers");
    me.barrier();
  });
}

}  // namespace ucclep::test
