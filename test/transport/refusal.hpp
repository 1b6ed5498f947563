// SPDX-License-Identifier: Apache-2.0
// What is refused, and in which words.
#pragma once
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

namespace ucclep::test {

// The message of the Error that the body throws.
template <class Body>
std::string refusal(ucclEpResult_t code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("it was taken");
  return "";
}

inline bool says(const std::string& message, const char* words) {
  INFO(message);
  return message.find(words) != std::string::npos;
}

}  // namespace ucclep::test
