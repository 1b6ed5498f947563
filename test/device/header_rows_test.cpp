// SPDX-License-Identifier: Apache-2.0
// Rows that LL finds by headers, of more tokens than a word has bits: on the host device no such rows are all lines.
#include <catch2/catch.hpp>
#include <cstring>

#include "trial.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep::test {
namespace {

// Some tokens of most words, and none of others.
bool comes(uint32_t token) {
  return token / 64 % 5 != 3 && (token * 2654435761u >> 28 & 5) != 4;
}

TEST_CASE("rows found by headers: a place counts the tokens before it that come, wave 32 and 64") {
  for (const unsigned wave : {32u, 64u}) {
    for (const uint32_t tokens : {1u, 63u, 64u, 65u, 129u, 2047u, 2048u}) {
      Trial trial({.wave = wave});
      trial.args.rounds = 2048;
      uint32_t facts[BlockTableLayout::fact_bytes / 4] = {0, tokens, 1};
      auto* const present = reinterpret_cast<uint64_t*>(trial.args.data + 64);
      for (uint32_t token = 0; token < tokens; ++token) {
        if (comes(token)) present[token / 64] |= uint64_t{1} << token % 64;
        facts[0] += comes(token);
      }
      std::memcpy(trial.args.data, facts, sizeof facts);
      REQUIRE(trial.run("trial_finds_rows", {1, wave, 0}));
      uint64_t place = 0;
      uint32_t wrong = 0;
      for (uint32_t token = 0; token < 2048; ++token) {
        const bool here = token < tokens && comes(token);
        if (here) ++place;
        if (trial.args.out[token] != (here ? place : 0)) ++wrong;
      }
      CHECK(wrong == 0);
      CHECK(place == facts[0]);
    }
  }
}

}  // namespace
}  // namespace ucclep::test
