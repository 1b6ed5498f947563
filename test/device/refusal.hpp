// SPDX-License-Identifier: Apache-2.0
// A call that has to throw.
#pragma once
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

namespace ucclep::test {

template <class Call>
void is_refused(ucclEpResult_t code, const std::string& part, Call call) {
  try {
    call();
    FAIL("it was accepted: " << part);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK_THAT(error.what(), Catch::Matchers::Contains(part));
  }
}

}  // namespace ucclep::test
