// SPDX-License-Identifier: Apache-2.0
// The faulty transport does what it is asked to do: its statistics, and what a peer sees, say so.
#include "transport/faulty/faulty.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "transport/pair.hpp"

namespace ucclep::transport {
namespace {

constexpr uint32_t writes = 200;
constexpr uint64_t bytes = 64;

// The immediates that 1 has seen, in their order. Each finds its payload there.
std::vector<uint32_t> send_all(Pair& pair) {
  std::vector<uint32_t> seen;
  std::memset(pair.window[0].data(), 'x', Pair::window_bytes);
  for (uint32_t i = 0; i < writes; ++i) {
    const Operation operation = pair.write(i, bytes);
    REQUIRE(pair.endpoint[0]->post(1, {&operation, 1}) == 1);
  }
  unsigned done = 0;
  const auto begin = std::chrono::steady_clock::now();
  while ((done < writes || seen.size() < writes) &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
    for (const Completion& completion : pair.poll(0)) done += completion.kind == UCCLEP_COMPLETION_DONE;
    for (const Completion& completion : pair.poll(1)) {
      REQUIRE(completion.kind == UCCLEP_COMPLETION_ARRIVAL);
      const bool there = pair.window[1][completion.imm * bytes] == 'x';
      REQUIRE(there);
      seen.push_back(completion.imm);
    }
  }
  CHECK(done == writes);
  for (int turn = 0; turn < 1000; ++turn) {
    for (const Completion& completion : pair.poll(1)) seen.push_back(completion.imm);
  }
  return seen;
}

}  // namespace

TEST_CASE("faulty: payloads and immediates overtake each other, across the window", "[faulty]") {
  Pair pair("faulty:seed=5,repeat=0:loopback");
  const std::vector<uint32_t> seen = send_all(pair);
  const FaultStatistics& statistics = fault_statistics(*pair.endpoint[0]);
  CHECK(seen.size() == writes);
  CHECK(statistics.payloads_overtaken > writes / 2);
  CHECK(statistics.immediates_overtaken > writes / 2);
  CHECK(statistics.depth > writes / 2);
  CHECK(statistics.withheld > writes / 2);
  CHECK(statistics.repeated == 0);
  CHECK(seen != std::vector<uint32_t>(seen.rbegin(), seen.rend()));
  unsigned descents = 0;
  for (size_t i = 1; i < seen.size(); ++i) descents += seen[i] < seen[i - 1];
  CHECK(descents > writes / 4);
}

TEST_CASE("faulty: another payload lands between one and its immediate", "[faulty]") {
  Pair pair("faulty:seed=5,repeat=0:loopback");
  for (uint32_t i = 0; i < writes; ++i) {
    const Operation operation = pair.write(i, bytes);
    std::memset(pair.window[0].data() + i * bytes, 'x', bytes);
    pair.endpoint[0]->post(1, {&operation, 1});
  }
  // Payloads that are there before any immediate of theirs, or of those before them, has come.
  size_t max_unannounced = 0, announced = 0;
  for (int turn = 0; turn < 200; ++turn) {
    pair.poll(0);
    announced += pair.poll(1).size();
    size_t there = 0;
    for (uint32_t i = 0; i < writes; ++i) there += pair.window[1][i * bytes] == 'x';
    max_unannounced = std::max(max_unannounced, there - announced);
  }
  CHECK(announced == writes);
  CHECK(max_unannounced > writes / 4);
}

TEST_CASE("faulty: one seed is one order, another seed another", "[faulty]") {
  Pair first("faulty:seed=9:loopback"), again("faulty:seed=9:loopback"), other("faulty:seed=10:loopback");
  const std::vector<uint32_t> seen = send_all(first);
  CHECK(send_all(again) == seen);
  CHECK(send_all(other) != seen);
}

TEST_CASE("faulty: every arrival comes twice when asked to, and says neither source nor length", "[faulty]") {
  Pair pair("faulty:repeat=100,hide=both:loopback");
  CHECK(pair.endpoint[1]->traits().reports_source == 0);
  CHECK(pair.endpoint[1]->traits().reports_length == 0);
  CHECK(send_all(pair).size() == 2 * writes);
  CHECK(fault_statistics(*pair.endpoint[1]).repeated == writes);
}

TEST_CASE("faulty: a connection breaks at the operation that was asked for", "[faulty]") {
  Pair pair("faulty:break=10,peer=1,at=0:loopback");
  unsigned failed = 0, lost = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    const Operation operation = pair.write(i, bytes);
    pair.endpoint[0]->post(1, {&operation, 1});
    for (const Completion& completion : pair.poll(0)) {
      if (completion.kind != UCCLEP_COMPLETION_ERROR) continue;
      CHECK(std::string(completion.words).find("broke at operation 10") != std::string::npos);
      (completion.operation == UCCLEP_OPERATION_NONE ? lost : failed) += 1;
    }
    if (i < 9) CHECK(lost == 0);
  }
  CHECK(lost == 1);
  CHECK(failed >= 10);
  CHECK(fault_statistics(*pair.endpoint[0]).broken == 1);
  CHECK(fault_statistics(*pair.endpoint[1]).broken == 0);
}

// Who only waits for the other's writes posts nothing that could fail.
TEST_CASE("faulty: a connection that breaks is reported at its other end, though nothing is sent there", "[faulty]") {
  Pair pair("faulty:break=3,peer=1,at=0:loopback");
  std::vector<std::string> told;
  for (uint32_t turn = 0; turn < 2000 && told.empty(); ++turn) {
    const Operation operation = pair.write(0, bytes);
    if (turn < 3) pair.endpoint[0]->post(1, {&operation, 1});
    pair.poll(0);
    for (const Completion& completion : pair.poll(1)) {
      if (completion.kind != UCCLEP_COMPLETION_ERROR) continue;
      CHECK(completion.operation == UCCLEP_OPERATION_NONE);
      CHECK(completion.peer == 0);
      told.emplace_back(completion.words);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0] == "loopback: peer 0 has ended the connection");
}

TEST_CASE("faulty: a killed endpoint says so to its owner and nothing to its peers", "[faulty]") {
  Pair pair("faulty:kill=5,at=0,delay=0,repeat=0:loopback");
  for (uint32_t i = 0; i < 10; ++i) {
    const Operation operation = pair.write(i, bytes);
    pair.endpoint[0]->post(1, {&operation, 1});
  }
  bool lost = false;
  size_t ended = 0, arrived = 0;
  for (int turn = 0; turn < 100; ++turn) {
    for (const Completion& completion : pair.poll(0)) {
      if (completion.operation == UCCLEP_OPERATION_WRITE) ++ended;
      lost |= completion.peer == UCCLEP_UNKNOWN_PEER && completion.kind == UCCLEP_COMPLETION_ERROR;
    }
    arrived += pair.poll(1).size();
  }
  CHECK(lost);
  CHECK(ended == 10);
  CHECK(arrived == 0);  // none had left when it died
}

TEST_CASE("faulty: in an outage nothing arrives, and afterwards all does", "[faulty]") {
  using Clock = std::chrono::steady_clock;
  Pair pair("faulty:outage=3,ms=300,repeat=0:loopback");
  const auto begin = Clock::now();
  CHECK(send_all(pair).size() == writes);
  CHECK(Clock::now() - begin >= std::chrono::milliseconds(300));
  const FaultStatistics& statistics = fault_statistics(*pair.endpoint[0]);
  CHECK(statistics.outages == 1);
  CHECK(statistics.writes == writes);
  CHECK(statistics.broken == 0);
}

TEST_CASE("faulty: a poll stands still once, when the operation that was asked for has ended", "[faulty]") {
  using Clock = std::chrono::steady_clock;
  Pair pair("faulty:stall=2,ms=300:loopback");
  const FaultStatistics& statistics = fault_statistics(*pair.endpoint[0]);
  for (uint32_t i = 0; i < 3; ++i) {
    const Operation operation = pair.write(i, bytes);
    pair.endpoint[0]->post(1, {&operation, 1});
    const auto begin = Clock::now();
    for (int turn = 0; turn < 1000; ++turn) pair.poll(0);
    if (i == 1) CHECK(Clock::now() - begin >= std::chrono::milliseconds(300));
    CHECK(statistics.stalls == (i == 0 ? 0 : 1));
  }
}

TEST_CASE("faulty: settings that do not exist are refused", "[faulty]") {
  for (const char* name : {"faulty", "faulty:", "faulty:loopback", "faulty:seed:loopback", "faulty:seed=x:loopback",
                           "faulty:hide=nothing:loopback", "faulty:colour=3:loopback", "faulty:seed=1:nosuch"}) {
    INFO(name);
    try {
      make_transport(name);
      FAIL("it was taken");
    } catch (const Error& error) {
      CHECK(error.code() == ucclEpInvalidArgument);
    }
  }
}

}  // namespace ucclep::transport
