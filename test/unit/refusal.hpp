// SPDX-License-Identifier: Apache-2.0
// The message with which a call refuses an argument.
#pragma once
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

namespace ucclep::test {

template <class F>
std::string refusal(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ucclEpInvalidArgument);
    return error.what();
  }
  return "accepted";
}

}  // namespace ucclep::test
