// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <catch2/catch.hpp>

TEST_CASE("fail throws an Error with the code and the formatted sentence", "[base]") {
  try {
    ucclep::fail(ucclEpTimeout, "rank {} waited {} ms for rank {}", 3, 250, 7);
    FAIL("fail() returned");
  } catch (const ucclep::Error& error) {
    CHECK(error.code() == ucclEpTimeout);
    CHECK(std::string(error.what()) == "rank 3 waited 250 ms for rank 7");
  }
}
