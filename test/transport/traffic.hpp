// SPDX-License-Identifier: Apache-2.0
// Many operations of one endpoint to itself, for tests of what a transport has with its NIC at a time.
#pragma once
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <span>
#include <vector>

#include "base/deadline.hpp"
#include "transport/transport.hpp"

namespace ucclep::test {

constexpr transport::Operation bare_immediate{.kind = UCCLEP_OPERATION_WRITE,
                                              .flags = UCCLEP_OPERATION_IMM,
                                              .local_region = UCCLEP_NO_REGION,
                                              .remote_region = UCCLEP_NO_REGION,
                                              .local_offset = 0,
                                              .remote_offset = 0,
                                              .bytes = 0,
                                              .cookie = 0,
                                              .imm = 7};

// The endpoint's peer 0 is the endpoint itself. Every operation has to end well, and to arrive.
inline void send_to_itself(transport::Endpoint& endpoint, const transport::Operation& operation, uint32_t wanted) {
  const std::vector<transport::Operation> chain(100, operation);
  uint32_t posted = 0, done = 0, arrived = 0;
  const Deadline deadline = Deadline::after_ms(60000);
  while ((done < wanted || arrived < wanted) && !deadline.expired()) {
    while (posted < wanted) {
      const uint32_t taken = endpoint.post(0, std::span(chain).first(std::min<size_t>(chain.size(), wanted - posted)));
      posted += taken;
      if (taken == 0) break;
    }
    std::array<transport::Completion, 32> completions;
    const uint32_t count = endpoint.poll(completions);
    for (const transport::Completion& one : std::span(completions).first(count)) {
      if (one.kind == UCCLEP_COMPLETION_ERROR) FAIL(one.words);
      (one.kind == UCCLEP_COMPLETION_DONE ? done : arrived) += 1;
    }
  }
  CHECK(done == wanted);
  CHECK(arrived == wanted);
}

}  // namespace ucclep::test
