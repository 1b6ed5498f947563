// SPDX-License-Identifier: Apache-2.0
#include "topology/pci.hpp"

#include <catch2/catch.hpp>

using namespace ucclep::topology;

TEST_CASE("PCI addresses are read and written as the kernel writes them", "[topology]") {
  const auto address = PciAddress::parse("10001:e1:1f.7");
  REQUIRE(address);
  CHECK(*address == PciAddress{0x10001, 0xe1, 0x1f, 7});
  CHECK(address->text() == "10001:e1:1f.7");
  CHECK(PciAddress::parse("1b:00.0") == PciAddress{0, 0x1b, 0, 0});
  CHECK(PciAddress{0, 0x1b, 0, 0}.text() == "0000:1b:00.0");
  for (const char* wrong : {"", "1b", "1b:00", "1b:20.0", "1b:00.8", "0000:1b:00.0 ", "0000:1b:00.0x", "zz:00.0"}) {
    INFO(wrong);
    CHECK_FALSE(PciAddress::parse(wrong));
  }
}

TEST_CASE("distance tells switch, host bridge, NUMA node and machine apart", "[topology]") {
  const PciAddress upstream{0, 1, 0, 0}, left{0, 2, 0, 0}, right{0, 2, 1, 0}, other{0, 9, 0, 0};
  const PciPlace gpu{{0, 3, 0, 0}, 0, 0, {upstream, left}};
  const PciPlace same_switch{{0, 4, 0, 0}, 0, 0, {upstream, left}}, next_switch{{0, 5, 0, 0}, 0, 0, {upstream, right}};
  const PciPlace other_port{{0, 10, 0, 0}, 0, 0, {other}}, other_bridge{{0, 20, 0, 0}, 0, 1, {}};
  const PciPlace other_socket{{0, 30, 0, 0}, 1, 2, {}}, nowhere{};
  CHECK(distance(gpu, same_switch).path == Path::pcie_switch);
  CHECK(distance(gpu, next_switch).path == Path::pcie_switch);
  CHECK(distance(gpu, other_port).path == Path::host_bridge);
  CHECK(distance(gpu, other_bridge).path == Path::numa_node);
  CHECK(distance(gpu, other_socket).path == Path::machine);
  CHECK(distance(nowhere, nowhere).path == Path::machine);
  CHECK(distance(gpu, same_switch) < distance(gpu, next_switch));
  CHECK(distance(gpu, next_switch) < distance(gpu, other_port));
  CHECK(distance(gpu, other_port) < distance(gpu, other_bridge));
  CHECK(distance(gpu, other_bridge) < distance(gpu, other_socket));
  CHECK(distance(gpu, next_switch) == distance(next_switch, gpu));
}
