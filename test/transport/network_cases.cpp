// SPDX-License-Identifier: Apache-2.0
// Members in two networks, and what goes wrong between these. The suite of transports runs there, too.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "base/deadline.hpp"
#include "transport/networks.hpp"
#include "transport/payload.hpp"

namespace ucclep::test {
namespace {

Networks networks;
const bool staged = (stage = &networks, true);

void poll_for(Member& me, int64_t ms) {
  const Deadline deadline = Deadline::after_ms(ms);
  me.until([&] { return deadline.expired(); }, "some time to pass");
}

// Writes numbers [first, first + count) from 0 to 1, where all of them arrive.
void stream(Member& me, uint32_t first, uint32_t count) {
  if (me.rank() == 0) {
    for (uint32_t i = first; i < first + count; ++i) me.send(1, Member::with_imm(me.write(1, 0, 4096, 7168), i));
    me.finish();
  } else {
    me.until([&] { return me.arrived().size() == first + count; }, "what was written");
  }
  me.barrier();
}

sockaddr_in listener_in(const transport::Address& address) {  // it ends with where the provider listens
  sockaddr_in listener;
  check(address.size() > sizeof(listener), "a short address");
  std::memcpy(&listener, &*address.end() - sizeof(listener), sizeof(listener));
  return listener;
}

}  // namespace

TEST_CASE("networks: members in two networks listen there, and reach each other", "[network]") {
  run_team([](Member& me) {
    for (int rank = 0; rank < 2; ++rank) {
      char text[INET_ADDRSTRLEN];
      const sockaddr_in listener = listener_in(me.address(rank));
      const std::string where = inet_ntop(AF_INET, &listener.sin_addr, text, sizeof(text));
      check(where == Networks::address[rank], "a member listens at " + where);
    }
    stream(me, 0, 100);
  });
}

TEST_CASE("networks: a link that is down for less than the timeout loses nothing", "[network]") {
  TeamOptions options;
  options.timeout_ms = 60000;
  run_team(options, [](Member& me) {
    stream(me, 0, 100);
    for (uint32_t flap = 1; flap <= 3; ++flap) {
      // The first ones go into a link that is down.
      if (me.rank() == 0) {
        networks.link(false);
        for (uint32_t i = 0; i < 10; ++i) me.send(1, Member::with_imm(me.write(1, 0, 4096, 65536), flap * 100 + i));
        poll_for(me, 100 * flap);
        networks.link(true);
        me.finish();
      }
      me.until([&] { return me.rank() == 0 || me.arrived().size() == 100 + flap * 10; },
               "what met a link that was down");
      me.barrier();
    }
  });
}

TEST_CASE("networks: a link that is down for longer than the timeout ends in an ERROR", "[network]") {
  TeamOptions options;
  options.timeout_ms = 4000;
  run_team(options, [](Member& me) {
    stream(me, 0, 100);
    if (me.rank() == 0) {
      networks.link(false);
      const Event error = me.send_until_broken(1, Member::with_imm(me.write(1, 0, 4096, 65536), 1000));
      check(error.peer == 1 && error.message.find("peer 1") != std::string::npos,
            "peer 1 is not named: " + error.message);
      check(error.code == ucclEpTimeout || error.code == ucclEpRemoteError, "another code: " + error.message);
      // The endpoint goes on without that peer.
      me.errors.clear();
      me.send(0, me.write(0, 0, 4096, 64));
      me.finish();
      networks.link(true);
    }
    me.barrier();
  });
}

TEST_CASE("networks: an address that nobody has ends in an ERROR", "[network]") {
  TeamOptions options;
  options.timeout_ms = 4000;
  options.alone = {0};
  run_team(options, [](Member& me) {
    if (me.rank() == 0) {
      transport::Address address = me.address(1);
      sockaddr_in listener = listener_in(address);
      inet_pton(AF_INET, Networks::nobodys_address, &listener.sin_addr);
      std::memcpy(&*address.end() - sizeof(listener), &listener, sizeof(listener));
      me.endpoint().connect(1, 0, address);
      const Event error = me.send_until_broken(1, Member::with_imm(me.write(0, 0, 0, 0), 1));
      check(error.peer == 1 && error.message.find("peer 1") != std::string::npos,
            "peer 1 is not named: " + error.message);
    }
    me.barrier();
  });
}

}  // namespace ucclep::test
