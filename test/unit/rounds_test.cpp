// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rounds.hpp"

#include <catch2/catch.hpp>

#include "bootstrap/agreement.hpp"
#include "bootstrap/pieces.hpp"

using namespace ucclep;
using Catch::Matchers::Contains;
using wire::RoundKind;

TEST_CASE("a round ends for all when the last part comes, and concatenates by rank") {
  Rounds rounds(3);
  CHECK(rounds.add_part(2, 0, RoundKind::gather, "c").empty());
  CHECK(rounds.add_part(0, 0, RoundKind::gather, "a").empty());
  auto deliveries = rounds.add_part(1, 0, RoundKind::gather, "b");
  REQUIRE(deliveries.size() == 3);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(deliveries[static_cast<size_t>(rank)].rank == rank);
    CHECK(deliveries[static_cast<size_t>(rank)].code == ucclEpSuccess);
    CHECK(*deliveries[static_cast<size_t>(rank)].payload == "abc");
  }
}

TEST_CASE("parts of a collection may differ in size, and one may be empty") {
  Rounds rounds(3);
  CHECK(rounds.add_part(2, 0, RoundKind::collect, "ccc").empty());
  CHECK(rounds.add_part(1, 0, RoundKind::collect, "").empty());
  auto deliveries = rounds.add_part(0, 0, RoundKind::collect, "a");
  REQUIRE(deliveries.size() == 3);
  CHECK(*deliveries[1].payload == "accc");
  rounds.add_part(0, 1, RoundKind::collect, "a");
  deliveries = rounds.add_part(1, 1, RoundKind::gather, "a");
  REQUIRE(deliveries.size() == 2);
  CHECK_THAT(*deliveries[0].payload, Contains("rank 0 is in a collection of texts, rank 1 in an allgather"));
}

namespace {

std::string pieces(std::initializer_list<const char*> texts) {
  std::string part;
  for (const char* text : texts) put_piece(part, text);
  return part;
}

}  // namespace

TEST_CASE("in an exchange each rank gets the pieces that are for it, and nothing else") {
  Rounds rounds(3);
  rounds.add_part(2, 0, RoundKind::exchange, pieces({"20", "21", ""}));
  rounds.add_part(0, 0, RoundKind::exchange, pieces({"", "01", "02"}));
  const auto deliveries = rounds.add_part(1, 0, RoundKind::exchange, pieces({"10", "", "12"}));
  REQUIRE(deliveries.size() == 3);
  CHECK(*deliveries[0].payload == pieces({"", "10", "20"}));
  CHECK(*deliveries[1].payload == pieces({"01", "", "21"}));
  CHECK(*deliveries[2].payload == pieces({"02", "12", ""}));
}

TEST_CASE("what rank brings too few pieces to an exchange is named on all ranks") {
  for (const std::string& part : {pieces({"10"}), std::string("\xff\xff\xff\xff"), std::string()}) {
    Rounds rounds(2);
    rounds.add_part(1, 0, RoundKind::exchange, part);
    const auto deliveries = rounds.add_part(0, 0, RoundKind::exchange, pieces({"", "01"}));
    REQUIRE(deliveries.size() == 2);
    for (const Rounds::Delivery& one : deliveries) {
      CHECK(one.code == ucclEpRemoteError);
      CHECK_THAT(*one.payload, Contains("rank 1 sent") && Contains("to an exchange, expected 2"));
    }
  }
}

TEST_CASE("an exchange of the living goes on without the dead, of whom there are empty pieces") {
  Rounds rounds(3);
  rounds.add_part(0, 0, RoundKind::exchange_living, pieces({"", "01", "02"}));
  rounds.add_part(2, 0, RoundKind::exchange_living, pieces({"20", "21", ""}));
  const auto deliveries = rounds.leave(1, "rank 1 has died");
  REQUIRE(deliveries.size() == 2);
  CHECK(*deliveries[0].payload == pieces({"", "", "20"}));
  CHECK(*deliveries[1].payload == pieces({"02", "", ""}));
  rounds.add_part(0, 1, RoundKind::exchange, pieces({"", "", ""}));
  const auto late = rounds.add_part(2, 1, RoundKind::exchange, pieces({"", "", ""}));
  REQUIRE_FALSE(late.empty());
  CHECK(late.back().code == ucclEpRemoteError);
}

TEST_CASE("fast ranks may be rounds ahead") {
  Rounds rounds(2);
  CHECK(rounds.add_part(0, 0, RoundKind::gather, "x").empty());
  // Rank 1 ends round 0 and is in round 1 before rank 0 has read its result.
  CHECK(rounds.add_part(1, 0, RoundKind::gather, "y").size() == 2);
  CHECK(rounds.add_part(1, 1, RoundKind::gather, "").empty());
  auto deliveries = rounds.add_part(0, 1, RoundKind::gather, "");
  REQUIRE(deliveries.size() == 2);
  CHECK(deliveries[0].sequence == 1);
}

TEST_CASE("a round that one rank gives up fails for all, late ranks included") {
  Rounds rounds(4);
  rounds.add_part(0, 5, RoundKind::gather, "a");
  rounds.add_part(3, 5, RoundKind::gather, "a");
  auto deliveries = rounds.give_up(3, 5, 200);
  REQUIRE(deliveries.size() == 2);
  CHECK(deliveries[0].code == ucclEpTimeout);
  CHECK(*deliveries[0].payload == "ranks 1 and 2 did not arrive within 200 ms, then rank 3 gave up");
  CHECK(rounds.give_up(0, 5, 200).empty());
  for (int late : {1, 2}) {
    deliveries = rounds.add_part(late, 5, RoundKind::gather, "a");
    REQUIRE(deliveries.size() == 1);
    CHECK(deliveries[0].rank == late);
    CHECK(deliveries[0].code == ucclEpTimeout);
  }
  CHECK(rounds.give_up(0, 5, 200).empty());  // forgotten
  for (int rank = 0; rank < 3; ++rank) rounds.add_part(rank, 6, RoundKind::gather, "a");
  CHECK(rounds.add_part(3, 6, RoundKind::gather, "a").front().code == ucclEpSuccess);
}

TEST_CASE("a rank that is gone fails the rounds that miss it, now and later") {
  Rounds rounds(3);
  rounds.add_part(0, 0, RoundKind::gather, "a");
  auto deliveries = rounds.leave(2, "rank 2 has died");
  REQUIRE(deliveries.size() == 1);
  CHECK(deliveries[0].rank == 0);
  CHECK(deliveries[0].code == ucclEpRemoteError);
  CHECK(*deliveries[0].payload == "rank 2 has died");
  CHECK(rounds.leave(2, "rank 2 again").empty());
  CHECK(rounds.add_part(1, 0, RoundKind::gather, "a").front().code == ucclEpRemoteError);
  deliveries = rounds.add_part(1, 1, RoundKind::agree, Agreement("x").contribution());
  REQUIRE(deliveries.size() == 1);
  CHECK(*deliveries[0].payload == "rank 2 has died");
}

TEST_CASE("a rank that brought its part before it died fails the round too") {
  Rounds rounds(3);
  rounds.add_part(2, 0, RoundKind::gather, "c");
  rounds.add_part(0, 0, RoundKind::gather, "a");
  auto deliveries = rounds.leave(2, "rank 2 has died");
  REQUIRE(deliveries.size() == 1);
  CHECK(deliveries[0].code == ucclEpRemoteError);
  deliveries = rounds.add_part(1, 0, RoundKind::gather, "b");
  REQUIRE(deliveries.size() == 1);
  CHECK(*deliveries[0].payload == "rank 2 has died");
}

TEST_CASE("a barrier of the living waits for nobody who is gone") {
  Rounds rounds(3);
  CHECK(rounds.add_part(0, 0, RoundKind::living, "").empty());
  CHECK(rounds.leave(1, "rank 1 has left").empty());
  auto deliveries = rounds.add_part(2, 0, RoundKind::living, "");
  REQUIRE(deliveries.size() == 2);
  CHECK(deliveries[1].code == ucclEpSuccess);
  CHECK(rounds.add_part(0, 1, RoundKind::living, "").empty());
  CHECK(rounds.leave(2, "rank 2 has left").size() == 1);
}

TEST_CASE("ranks that make different calls get an error") {
  Rounds rounds(2);
  rounds.add_part(0, 0, RoundKind::gather, "1234");
  auto deliveries = rounds.add_part(1, 0, RoundKind::gather, "12345678");
  REQUIRE(deliveries.size() == 2);
  CHECK(deliveries[0].code == ucclEpInvalidUsage);
  CHECK_THAT(*deliveries[0].payload, Contains("rank 0 sent 4 bytes, rank 1 sent 8"));
  rounds.add_part(1, 1, RoundKind::agree, "");
  deliveries = rounds.add_part(0, 1, RoundKind::living, "");
  REQUIRE(deliveries.size() == 2);
  CHECK_THAT(*deliveries[0].payload, Contains("rank 1 is in an agreement, rank 0 in a call among surviving ranks"));
}
