// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/unique_id.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using namespace ucclep;
using Catch::Matchers::Contains;

TEST_CASE("a unique id brings address and secret back") {
  WireAddress v4{.family = 4, .port = 4321, .ip = {10, 0, 0, 5}};
  WireAddress v6{.family = 6, .port = 80, .ip = {0xfd, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}};
  for (const WireAddress& wire : {v4, v6}) {
    UniqueId id{from_wire(wire), Token::random()};
    UniqueId back = decode(encode(id));
    CHECK(back.address.text() == id.address.text());
    CHECK(back.secret == id.secret);
  }
  CHECK(from_wire(v4).text() == "10.0.0.5:4321");
  CHECK(from_wire(v6).text() == "[fd00:102:304:506:708:90a:b0c:d0e]:80");
}

TEST_CASE("bytes that are no unique id are refused") {
  ucclEpUniqueId zero{};
  CHECK_THROWS_WITH(decode(zero), Contains("not made by ucclEpGetUniqueId"));
  ucclEpUniqueId id = encode({from_wire({.family = 4, .port = 1, .ip = {127, 0, 0, 1}}), Token::random()});
  for (size_t byte = 8; byte < 56; ++byte) {
    ucclEpUniqueId damaged = id;
    damaged.internal[byte] = static_cast<char>(damaged.internal[byte] ^ 0x10);
    CHECK_THROWS_AS(decode(damaged), Error);
  }
}

TEST_CASE("interfaces are chosen by name as users of NCCL know it") {
  CHECK(local_address("lo").text() == "127.0.0.1:0");
  CHECK(local_address("nosuch,lo").text() == "127.0.0.1:0");
  CHECK(local_address("=lo").text() == "127.0.0.1:0");
  CHECK_NOTHROW(local_address("^nosuch"));
  try {
    local_address("nosuch");
    FAIL("an interface that does not exist was found");
  } catch (const Error& error) {
    CHECK(error.code() == ucclEpInvalidArgument);
    CHECK_THAT(error.what(), Contains("UCCLEP_SOCKET_IFNAME=\"nosuch\"") && Contains("lo"));
  }
  CHECK_THROWS_AS(local_address("=l"), Error);
  CHECK_NOTHROW(local_address(""));
}
