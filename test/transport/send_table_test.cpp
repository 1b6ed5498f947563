// SPDX-License-Identifier: Apache-2.0
#include "transport/send_table.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

namespace ucclep::transport {
namespace {

Config small_config(uint32_t sends, uint32_t timeout_ms = 60000) {
  return {nullptr, 3, sends, 1, timeout_ms, 0};
}

Operation write_of(uint64_t cookie) {
  Operation operation{};
  operation.kind = UCCLEP_OPERATION_WRITE;
  operation.bytes = 10 + cookie;
  operation.cookie = cookie;
  return operation;
}

std::vector<Completion> reports(SendTable& table) {
  std::array<Completion, 64> completions;
  return {completions.begin(), completions.begin() + table.report(completions)};
}

}  // namespace

TEST_CASE("send table: operations begin in order and end once, in the order of their return", "[send_table]") {
  SendTable table(small_config(4));
  for (uint64_t i = 0; i < 4; ++i) REQUIRE(table.take(1, write_of(i)));
  CHECK_FALSE(table.take(1, write_of(4)));
  const uint32_t first = table.next(1);
  CHECK(table[first].cookie == 0);
  table.begin(first);
  const uint32_t second = table.next(1);
  CHECK(table[second].cookie == 1);
  table.begin(second);
  CHECK(reports(table).empty());
  table.returned(second);
  table.returned(first);
  // Room comes with the report, not before.
  CHECK_FALSE(table.take(1, write_of(4)));
  const auto done = reports(table);
  REQUIRE(done.size() == 2);
  CHECK((done[0].cookie == 1 && done[0].bytes == 11 && done[0].kind == UCCLEP_COMPLETION_DONE && done[0].peer == 1));
  CHECK(done[1].cookie == 0);
  CHECK(table.take(1, write_of(4)));
  CHECK(table.take(1, write_of(5)));
  CHECK_FALSE(table.take(1, write_of(6)));
}

TEST_CASE("send table: a broken connection fails all its operations, once, and no others", "[send_table]") {
  SendTable table(small_config(8));
  for (uint64_t i = 0; i < 3; ++i) table.take(1, write_of(i));
  table.take(2, write_of(7));
  const uint32_t begun = table.next(1);
  table.begin(begun);
  table.break_connection(1, ucclEpRemoteError, "peer 1 fell over");
  table.break_connection(1, ucclEpTimeout, "later");
  CHECK(table.broken(1));
  CHECK_FALSE(table.broken(2));
  const auto failed = reports(table);
  REQUIRE(failed.size() == 4);
  CHECK((failed[0].operation == UCCLEP_OPERATION_NONE && failed[0].peer == 1 && failed[0].code == ucclEpRemoteError));
  for (size_t i = 1; i < 4; ++i) {
    CHECK((failed[i].kind == UCCLEP_COMPLETION_ERROR && failed[i].operation == UCCLEP_OPERATION_WRITE));
    CHECK(std::string(failed[i].words) == "peer 1 fell over");
  }
  // The one that the NIC had comes back, and is not reported again.
  table.returned(begun);
  CHECK(reports(table).empty());
  table.take(1, write_of(9));
  const auto later = reports(table);
  REQUIRE(later.size() == 1);
  CHECK((later[0].cookie == 9 && later[0].kind == UCCLEP_COMPLETION_ERROR));
  CHECK(table.next(2) != SendTable::none);
}

TEST_CASE("send table: what the NIC keeps after a connection broke takes no room from the others", "[send_table]") {
  SendTable table(small_config(4));
  for (int round = 0; round < 10; ++round) {
    for (uint64_t i = 0; i < 4; ++i) {
      REQUIRE(table.take(1, write_of(i)));
      table.begin(table.next(1));
    }
    table.break_connection(1, ucclEpRemoteError, "gone");
    CHECK(reports(table).size() == 5);
    table.forget(1);  // the four are still the NIC's, now and in all rounds to come
  }
  for (uint64_t i = 0; i < 4; ++i) CHECK(table.take(2, write_of(i)));
}

TEST_CASE("send table: a peer that is forgotten is not heard of again", "[send_table]") {
  SendTable table(small_config(4));
  for (uint64_t i = 0; i < 4; ++i) table.take(1, write_of(i));
  const uint32_t ended = table.next(1);
  table.begin(ended);
  table.returned(ended);
  const uint32_t begun = table.next(1);
  table.begin(begun);
  table.forget(1);
  CHECK(reports(table).empty());
  CHECK_FALSE(table.anything_waits());
  table.returned(begun);
  CHECK(reports(table).empty());
  for (uint64_t i = 0; i < 4; ++i) CHECK(table.take(1, write_of(i)));

  table.break_connection(1, ucclEpRemoteError, "gone");
  table.forget(1);
  CHECK_FALSE(table.broken(1));
  CHECK(reports(table).empty());
}

TEST_CASE("send table: little room for reports delays them and loses none", "[send_table]") {
  SendTable table(small_config(8));
  for (uint64_t i = 0; i < 8; ++i) table.take(1, write_of(i));
  table.break_connection(1, ucclEpRemoteError, "gone");
  std::array<Completion, 1> one;
  unsigned reported = 0;
  while (table.report(one) == 1) ++reported;
  CHECK(reported == 9);
}

TEST_CASE("send table: a connection that completes nothing in time breaks; rest is no fault of it", "[send_table]") {
  constexpr uint32_t timeout_ms = 200;
  const auto watch_for = [](SendTable& table, int64_t ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (std::chrono::steady_clock::now() < end) table.watch();
  };
  SendTable table(small_config(4, timeout_ms));
  watch_for(table, 2 * timeout_ms);
  CHECK_FALSE(table.broken(1));  // nothing was unfinished
  std::this_thread::sleep_for(std::chrono::milliseconds(3 * timeout_ms));
  table.take(1, write_of(0));
  for (int i = 0; i < 64; ++i) table.watch();
  CHECK_FALSE(table.broken(1));  // nobody looked meanwhile
  const auto begin = std::chrono::steady_clock::now();
  while (!table.broken(1) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) table.watch();
  REQUIRE(table.broken(1));
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(timeout_ms / 2));
  const auto failed = reports(table);
  REQUIRE(failed.size() == 2);
  CHECK(failed[1].code == ucclEpTimeout);
}

}  // namespace ucclep::transport
