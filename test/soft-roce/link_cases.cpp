// SPDX-License-Identifier: Apache-2.0
// What goes wrong on a real link of RoCE: rxe0 of member 0, on veth0, and rxe1 of member 1, on veth1. Runs as root in
// the virtual machine only, where the link may be taken down.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "transport/payload.hpp"
#include "transport/verbs/regions.hpp"

namespace ucclep::test {
namespace {

constexpr uint16_t roce_port = 4791;
constexpr std::array<uint8_t, 4> addresses[] = {{10, 77, 0, 1}, {10, 77, 0, 2}};

void interface_of(int member, const char* up_or_down) {
  const std::string command = fmt::format("ip link set veth{} {}", member, up_or_down);
  check(std::system(command.c_str()) == 0, command);
}

uint64_t packets_of(const std::string& interface) {
  uint64_t count = 0;
  std::ifstream("/sys/class/net/" + interface + "/statistics/rx_packets") >> count;
  return count;
}

void check_connection(Member& me, uint32_t imm) {
  const int peer = 1 - me.rank();
  fill_payload(me.window(), imm + static_cast<uint32_t>(me.rank()), 7168);
  me.barrier();
  me.send(peer, Member::with_imm(me.write(peer, 0, 65536, 7168), imm));
  me.finish();
  me.until([&] { return me.arrived().count(imm) == 1; }, "a write that goes well");
  check_payload(me.window() + 65536, imm + static_cast<uint32_t>(peer), 7168);
  me.barrier();
}

void connect_anew(Member& me) {
  const int peer = 1 - me.rank();
  me.barrier();
  me.disconnect(peer);
  me.barrier();
  me.connect(peer);
  me.errors.clear();
}

void wait(Member& me, int64_t ms) {
  const Deadline end = Deadline::after_ms(ms);
  me.until([&] { return end.expired(); }, "time");
}

// The address of the endpoint as if it were at another IPv4 address.
transport::Address moved(transport::Address address, int peer, std::array<uint8_t, 4> to) {
  const auto* old = reinterpret_cast<const std::byte*>(addresses[peer].data());
  const auto found = std::search(address.begin(), address.end(), old, old + 4);
  check(found != address.end(), "the address holds no IPv4 address");
  std::memcpy(&*found, to.data(), to.size());
  return address;
}

Fd stranger() {
  Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // Over the link, though the destination is an address of this machine.
  check(setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, "veth0", 5) == 0, "SO_BINDTODEVICE");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(roce_port);
  std::memcpy(&to.sin_addr, addresses[1].data(), 4);
  check(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0, "connect");
  return fd;
}

// A packet of RoCE for the queue pair, up to its checksum, which is wrong.
std::vector<uint8_t> forged_packet(uint8_t opcode, uint32_t queue_pair, size_t bytes) {
  std::vector<uint8_t> packet(bytes, 0xa5);
  const uint32_t to = htonl(queue_pair), sequence = htonl(0x80000001);
  packet[0] = opcode;
  packet[1] = 0;
  packet[2] = packet[3] = 0xff;
  std::memcpy(&packet[4], &to, 4);
  std::memcpy(&packet[8], &sequence, 4);
  return packet;
}

}  // namespace

TEST_CASE("roce: a wrong rkey is a remote access error", "[roce]") {
  run_team([](Member& me) {
    if (me.rank() == 0) {
      transport::Key forged = me.key(1);
      transport::verbs::VerbsKey content;
      std::memcpy(&content, forged.bytes, sizeof(content));
      content.rkey ^= 0x5500;
      std::memcpy(forged.bytes, &content, sizeof(content));
      transport::Operation operation = me.write(1, 0, 0, 64);
      operation.remote_region = me.endpoint().import_region(1, forged);
      me.send(1, operation);
      const Event error = me.until_broken(1, "a wrong rkey");
      check(error.code == ucclEpRemoteError, "another code: " + error.message);
      check(error.message == "verbs rxe0: peer 1: a write failed: remote access error", error.message);
    }
    me.barrier();
  });
}

TEST_CASE("roce: packets that are no packets, and forged ones, change nothing", "[roce]") {
  run_team([](Member& me) {
    constexpr size_t sizes[] = {0, 1, 11, 12, 15, 16, 17, 64, 1000, 4000};
    constexpr unsigned opcodes = 256;
    if (me.rank() == 0) {
      const Fd socket = stranger();
      const uint64_t before = packets_of("veth1");
      const std::vector<uint8_t> noise(4000, 0xa5);
      // The numbers of the peer's queue pairs are the end of its address, that of this member's first.
      uint32_t pair = 0;
      std::memcpy(&pair, me.address(1).data() + me.address(1).size() - 2 * sizeof(pair), sizeof(pair));
      for (const size_t bytes : sizes) send(socket.get(), noise.data(), bytes, 0);
      for (unsigned opcode = 0; opcode < opcodes; ++opcode) {
        const auto packet = forged_packet(static_cast<uint8_t>(opcode), pair, 12 + sizes[opcode % std::size(sizes)]);
        send(socket.get(), packet.data(), packet.size(), 0);
        me.poll();
      }
      me.until([&] { return packets_of("veth1") >= before + std::size(sizes) + opcodes; }, "the packets at the peer");
    }
    check_connection(me, 1);
    check(me.errors.empty(), "an error after packets of a stranger");
  });
}

TEST_CASE("roce: an address without a route, and one that nobody answers from, are refused with the peer's number",
          "[roce]") {
  run_team([](Member& me) {
    const int peer = 1 - me.rank();
    me.barrier();
    me.disconnect(peer);
    for (const std::array<uint8_t, 4> address : {std::array<uint8_t, 4>{10, 99, 0, 1}, {10, 77, 0, 99}}) {
      const std::string message = Member::refused(ucclEpSystemError, [&] {
        me.endpoint().connect(static_cast<uint32_t>(peer), static_cast<uint32_t>(me.rank()),
                              moved(me.address(peer), peer, address));
      });
      check(message.find("cannot connect") != std::string::npos, message);
      check(message.find("peer " + std::to_string(peer)) != std::string::npos, message);
    }
    connect_anew(me);
    check_connection(me, 1);
  });
}

TEST_CASE("roce: a link that is down for a moment delays what is under way, and loses nothing", "[roce]") {
  run_team([](Member& me) {
    const int peer = 1 - me.rank();
    constexpr uint32_t writes = 200;
    for (int sender : {0, 1}) {
      me.barrier();
      if (me.rank() == sender) {
        interface_of(peer, "down");
        for (uint32_t i = 0; i < writes; ++i) me.send(peer, Member::with_imm(me.write(peer, 0, 65536, 1000), i));
        wait(me, 1500);
        check(me.unfinished() > 0, "the link was not down");
        interface_of(peer, "up");
        me.finish();
      } else {
        me.until([&] { return me.arrived().size() == writes; }, "what was sent while the link was down");
      }
    }
    me.barrier();
  });
}

TEST_CASE("roce: a link that stays down is a timeout, and works again when both sides have connected anew", "[roce]") {
  TeamOptions options;
  options.timeout_ms = 1500;
  run_team(options, [](Member& me) {
    if (me.rank() == 0) {
      interface_of(1, "down");
      const Event error = me.send_until_broken(1, me.write(1, 0, 65536, 7168));
      check(error.code == ucclEpTimeout && error.message.find("peer 1") != std::string::npos, error.message);
      interface_of(1, "up");
    }
    connect_anew(me);
    check_connection(me, 1);
  });
}

TEST_CASE("roce: an interface of one's own that is down is an error at once, and works again later", "[roce]") {
  run_team([](Member& me) {
    if (me.rank() == 0) {
      interface_of(0, "down");
      const Event error = me.send_until_broken(1, me.write(1, 0, 65536, 7168));
      check(error.code == ucclEpSystemError, "another code: " + error.message);
      check(error.message == "verbs rxe0: peer 1: a write failed: local QP operation error", error.message);
      interface_of(0, "up");
    }
    connect_anew(me);
    check_connection(me, 1);
  });
}

}  // namespace ucclep::test
