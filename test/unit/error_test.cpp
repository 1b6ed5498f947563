// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <catch2/catch.hpp>

TEST_CASE("fail throws an Error with the code and the formatted message", "[base]") {
  try {
    ucclep::fail(ucclEpTimeout, "rank {} waited {} ms for rank {}", 3, 250, 7);
    FAIL("fail() returned");
  } catch (const ucclep::Error& error) {
    CHECK(error.code() == ucclEpTimeout);
    CHECK(std::string(error.what()) == "rank 3 waited 250 ms for rank 7");
  }
}

TEST_CASE("A code from another process is an end, or an internal error", "[base]") {
  CHECK(ucclep::result_of(0) == ucclEpSuccess);
  CHECK(ucclep::result_of(12) == ucclEpOverflow);
  for (const int64_t none :
       {int64_t{-1}, int64_t{ucclEpInProgress}, int64_t{13}, int64_t{INT64_MIN}, int64_t{1} << 32}) {
    CHECK(ucclep::result_of(none) == ucclEpInternalError);
  }
}
