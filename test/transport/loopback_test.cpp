// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "transport/pair.hpp"

namespace ucclep::transport {
namespace {

size_t count_of(const std::vector<Completion>& completions, uint32_t kind) {
  return static_cast<size_t>(
      std::ranges::count_if(completions, [kind](const Completion& one) { return one.kind == kind; }));
}

TEST_CASE("loopback: who posts much sees meanwhile what comes", "[transport]") {
  constexpr uint32_t writes = 8;
  constexpr uint64_t bytes = Pair::window_bytes / writes;
  const Pair pair("loopback");
  const Operation answer = pair.write(0, 16, 1);
  REQUIRE(pair.endpoint[1]->post(0, {&answer, 1}) == 1);
  std::vector<Operation> chain;
  for (uint32_t i = 0; i < writes; ++i) chain.push_back(pair.write(i, bytes));
  REQUIRE(pair.endpoint[0]->post(1, chain) == writes);
  size_t arrived = count_of(pair.poll(1), UCCLEP_COMPLETION_ARRIVAL);
  CHECK(arrived == 1);
  CHECK(count_of(pair.poll(0), UCCLEP_COMPLETION_ARRIVAL) == 1);
  CHECK(arrived + count_of(pair.poll(1), UCCLEP_COMPLETION_ARRIVAL) < writes);
  for (uint32_t turn = 0; turn < writes; ++turn) pair.poll(0);
  CHECK(pair.poll(1).size() == writes - 2);
}

}  // namespace
}  // namespace ucclep::transport
