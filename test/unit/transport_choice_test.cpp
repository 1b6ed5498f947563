// SPDX-License-Identifier: Apache-2.0
// Which transport ranks on several machines choose.
#include "host/context/transport_choice.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace ucclep {
namespace {

using transport::Offer;

RankOffers on(const std::string& host, const std::string& verbs, const std::string& efa = "") {
  return {host,
          {{"verbs", verbs, verbs.empty() ? "no active port" : ""},
           {"ofi:efa", efa, efa.empty() ? "no provider efa" : ""},
           {"ofi:tcp", "libfabric's tcp", ""}}};
}

TEST_CASE("transport choice: the first that all ranks have") {
  const TransportChoice choice = choose_transport({on("a", "RoCE v2 by IPv4"), on("b", "RoCE v2 by IPv4")});
  CHECK(choice.chosen.transport == "verbs");
  CHECK(choice.chosen.network == "RoCE v2 by IPv4");
  CHECK(choice.passed_over.empty());
}

TEST_CASE("transport choice: a machine that lacks it is named, with what it lacks") {
  const TransportChoice choice = choose_transport({on("a", "InfiniBand"), on("a", "InfiniBand"), on("b", "")});
  CHECK(choice.chosen.transport == "ofi:tcp");
  CHECK(choice.passed_over == "verbs (rank 2 on b: no active port), ofi:efa (rank 0 on a: no provider efa)");
}

TEST_CASE("transport choice: networks of two kinds do not reach each other") {
  const TransportChoice choice =
      choose_transport({on("a", "InfiniBand, subnet 1", "EFA"), on("b", "InfiniBand, subnet 2", "EFA")});
  CHECK(choice.chosen.transport == "ofi:efa");
  CHECK(choice.passed_over == "verbs (rank 0 on a has InfiniBand, subnet 1, rank 1 on b has InfiniBand, subnet 2)");
}

TEST_CASE("transport choice: none") {
  RankOffers bare{"b",
                  {{"verbs", "", "no libibverbs"}, {"ofi:efa", "", "no libfabric"}, {"ofi:tcp", "", "no libfabric"}}};
  const TransportChoice choice = choose_transport({on("a", "RoCE v1"), bare});
  CHECK(choice.chosen.transport.empty());
  CHECK(choice.passed_over ==
        "verbs (rank 1 on b: no libibverbs), ofi:efa (rank 0 on a: no provider efa), "
        "ofi:tcp (rank 1 on b: no libfabric)");
}

TEST_CASE("transport choice: offers travel as text") {
  const std::vector<Offer> offers =
      parse_offers(pack({{"verbs", "", "a \"quoted\"\nline \xff"}, {"ofi:tcp", "tcp", ""}}));
  REQUIRE(offers.size() == 2);
  CHECK(offers[0].lack.find("a \"quoted\"\nline ") == 0);
  CHECK(offers[1].network == "tcp");
  for (const char* text : {"", "[[1,2,3]]", "[[\"verbs\"]]"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_offers(text), Error);
  }
}

}  // namespace
}  // namespace ucclep
