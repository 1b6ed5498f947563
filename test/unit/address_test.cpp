// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <cstring>

using namespace ucclep;

namespace {

InterfaceAddress on(const std::string& name, const std::string& text) {
  InterfaceAddress one;
  one.name = name;
  one.loopback = name == "lo";
  WireAddress wire;
  wire.family = text.find(':') == std::string::npos ? 4 : 6;
  inet_pton(wire.family == 4 ? AF_INET : AF_INET6, text.c_str(), wire.ip);
  one.address = from_wire(wire);
  return one;
}

std::string best(const std::vector<InterfaceAddress>& all, const std::string& ifname = "") {
  const InterfaceAddress* found = best_address(all, ifname);
  return found == nullptr ? "none" : found->address.text();
}

}  // namespace

TEST_CASE("a real interface is better than an address on lo, than a bridge, than loopback") {
  const InterfaceAddress local = on("lo", "127.0.0.1"), local6 = on("lo", "::1"), routed = on("lo", "10.1.2.3");
  const InterfaceAddress bridge = on("docker0", "172.17.0.1"), real = on("eth0", "192.168.1.2");
  CHECK(best({local, local6, routed, bridge, real}) == "192.168.1.2:0");
  CHECK(best({local, local6, bridge, routed}) == "10.1.2.3:0");
  CHECK(best({local, local6, bridge}) == "172.17.0.1:0");
  CHECK(best({local6, local}) == "127.0.0.1:0");
  CHECK(best({local6}) == "[::1]:0");
  CHECK(best({local, on("lo", "fd00::7")}) == "[fd00::7]:0");
  CHECK(best({on("lo", "127.1.2.3"), routed}) == "10.1.2.3:0");
  CHECK(best({}) == "none");
}

TEST_CASE("UCCLEP_SOCKET_IFNAME decides among addresses on lo, too") {
  const InterfaceAddress local = on("lo", "127.0.0.1"), routed = on("lo", "10.1.2.3");
  const InterfaceAddress bridge = on("docker0", "172.17.0.1"), real = on("eth0", "192.168.1.2");
  CHECK(best({local, routed, real}, "lo") == "10.1.2.3:0");
  CHECK(best({local, real}, "lo") == "127.0.0.1:0");
  CHECK(best({local, bridge, real}, "^eth") == "172.17.0.1:0");
  CHECK(best({local, bridge, real}, "=docker0") == "172.17.0.1:0");
  CHECK(best({local, bridge, real}, "ib") == "none");
}

TEST_CASE("an address that the kernel still tries out comes after those that can be bound") {
  std::vector<InterfaceAddress> all{on("lo", "::1"), on("eth0", "fd00::1"), on("eth0", "fd00::2")};
  mark_tentative(
      "00000000000000000000000000000001 01 80 10 80       lo\n"
      "fd000000000000000000000000000001 02 40 00 40     eth0\n"
      "fd000000000000000000000000000002 02 40 00 80     eth0\n",
      &all);
  CHECK(all[1].tentative);
  CHECK_FALSE(all[2].tentative);
  CHECK(best(all) == "[fd00::2]:0");
  all.pop_back();
  CHECK(best(all) == "[fd00::1]:0");  // which is waited for
  mark_tentative("nonsense\nfd000000000000000000000000000001 02 40 00", &all);
}
