// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/roll_call.hpp"

#include <catch2/catch.hpp>

using namespace ucclep;
using Catch::Matchers::Contains;

namespace {

wire::Greeting greeting(int rank, int nranks) {
  wire::Greeting one;
  one.rank = rank;
  one.nranks = nranks;
  one.pid = 100 + rank;
  one.timeout_ms = 500;
  wire::put_text(one.host, "somewhere");
  return one;
}

RollCall after(std::initializer_list<wire::Greeting> greetings) {
  RollCall roll;
  for (const auto& one : greetings) roll.arrive(one);
  return roll;
}

}  // namespace

TEST_CASE("ranks are named in full when they are few") {
  CHECK(name_ranks({3}) == "rank 3");
  CHECK(name_ranks({1, 2}) == "ranks 1 and 2");
  CHECK(name_ranks({1, 2, 5}) == "ranks 1, 2 and 5");
  std::vector<int> many(100);
  for (int i = 0; i < 100; ++i) many[static_cast<size_t>(i)] = i;
  CHECK(name_ranks(many) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more");
}

TEST_CASE("a roll call is over when every rank has come") {
  RollCall roll = after({greeting(2, 3), greeting(0, 3)});
  CHECK_FALSE(roll.decided());
  roll.arrive(greeting(1, 3));
  CHECK(roll.code() == ucclEpSuccess);
  CHECK(roll.complete());
}

TEST_CASE("ranks that do not fit together are refused with an error message") {
  RollCall twice = after({greeting(1, 3), greeting(1, 3)});
  CHECK(twice.code() == ucclEpInvalidArgument);
  CHECK_THAT(twice.message(), Contains("rank 1 joined twice") && Contains("pid 101"));
  RollCall differing = after({greeting(0, 3), greeting(1, 4)});
  CHECK(differing.code() == ucclEpInvalidArgument);
  CHECK_THAT(differing.message(), Contains("nranks differs") && Contains("gave 4") && Contains("gave 3"));
  for (int rank : {-1, 3, 4}) {
    RollCall outside = after({greeting(rank, 3)});
    CHECK(outside.code() == ucclEpInvalidArgument);
    CHECK_THAT(outside.message(), Contains("rank " + std::to_string(rank)) && Contains("expected 0 to 2"));
  }
  CHECK_THAT(after({greeting(0, 0)}).message(), Contains("nranks = 0"));
  for (int nranks : {4097, INT32_MAX}) {
    RollCall too_many = after({greeting(0, nranks)});
    CHECK(too_many.code() == ucclEpInvalidArgument);
    CHECK_THAT(too_many.message(), Contains(std::to_string(nranks)) && Contains("expected at most 4096"));
  }
  CHECK_FALSE(after({greeting(4095, 4096)}).decided());
}

TEST_CASE("who gives up names who is missing, and the decision stays") {
  RollCall roll = after({greeting(0, 4), greeting(2, 4)});
  roll.give_up(2);
  CHECK(roll.code() == ucclEpTimeout);
  CHECK(roll.message() == "ranks 1 and 3 did not join within 500 ms, then rank 2 gave up (2 of 4 ranks had joined)");
  roll.arrive(greeting(1, 4));
  roll.arrive(greeting(3, 4));
  roll.vanish(0);
  CHECK(roll.code() == ucclEpTimeout);
  CHECK(roll.complete());
  RollCall vanished = after({greeting(0, 2)});
  vanished.vanish(0);
  CHECK(vanished.code() == ucclEpRemoteError);
  CHECK_THAT(vanished.message(),
             Contains("rank 0 (pid 100 on host somewhere) closed its connection before all ranks had joined"));
}

TEST_CASE("thousands of missing ranks are told without listing them") {
  RollCall roll = after({greeting(1, 4096)});
  roll.give_up(1);
  CHECK_THAT(roll.message(), Contains("ranks 0, 2, 3, 4, 5, 6, 7, 8 and 4087 more did not join"));
}
