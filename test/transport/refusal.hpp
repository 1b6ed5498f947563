// SPDX-License-Identifier: Apache-2.0
// What is refused, and in which words.
#pragma once
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

namespace ucclep::test {

// The sentence of the Error that the body throws.
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

inline bool says(const std::string& sentence, const char* words) {
  INFO(sentence);
  return sentence.find(words) != std::string::npos;
}

}  // namespace ucclep::test
