// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <deque>
#include <random>
#include <vector>

#include "proxy/credits.hpp"
#include "proxy/in_flight.hpp"
#include "proxy/send_queue.hpp"
#include "support/test_env.hpp"

namespace ucclep::proxy {
namespace {

static_assert(CreditShape{}.is_sound() && CreditShape{2048, 2048, 8}.is_sound() && CreditShape{1, 1, 2}.is_sound());
static_assert(!CreditShape{2049, 1, 2}.is_sound() && !CreditShape{8, 9, 2}.is_sound() &&
              !CreditShape{8, 0, 2}.is_sound());
static_assert(CreditShape{64, 16, 2}.entries() == 64 + 4 + 1 + 9 + 1);
static_assert(CreditShape{64, 16, 2, 32}.entries() == 64 + 4 + 1 + 9 + 32 + 1);

TEST_CASE("credits: a window of data messages, and no more", "[credits]") {
  SendCredits credits({.window = 3, .return_every = 1});
  for (int i = 0; i < 3; ++i) CHECK(credits.acquire());
  CHECK_FALSE(credits.acquire());
  credits.returned(2);
  CHECK(credits.in_flight() == 1);
  credits.returned(1);  // overtaken
  CHECK(credits.in_flight() == 1);
  credits.returned(2);  // twice
  CHECK(credits.in_flight() == 1);
  credits.returned(4);  // more than was sent
  CHECK(credits.in_flight() == 1);
  CHECK(credits.acquire());
  CHECK(credits.acquire());
  CHECK_FALSE(credits.acquire());
}

// Both ends, over many times the range of a truncated value; credit messages are lost to later ones, repeated and
// overtaken. The receiver never has more than it keeps entries for, and nobody waits for ever.
TEST_CASE("credits: both ends agree through all orders of credit messages", "[credits]") {
  for (uint64_t seed = 1; seed <= 5 * test::seeds(); ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<uint32_t>(random() % n); };
    const uint32_t window = 1 + below(2048);
    const CreditShape shape{.window = window, .return_every = 1 + below(window)};
    INFO("seed " << seed << ", window " << window << ", a return for " << shape.return_every);
    SendCredits sender(shape);
    CreditReturn receiver(shape);
    std::vector<uint32_t> messages;  // on their way back
    uint64_t sent = 0, processed = 0, idle = 0;
    while (sent < 30'000 && idle < 1000) {
      const uint64_t before = sent + processed;
      for (uint32_t n = below(2 * window); n > 0 && sender.acquire(); --n) ++sent;
      REQUIRE(sent - processed <= window);
      for (uint32_t n = below(2 * window); n > 0 && processed < sent; --n) {
        receiver.processed();
        ++processed;
        if (receiver.is_due()) messages.push_back(receiver.mark_sent());
      }
      REQUIRE(messages.size() <= shape.control_entries());
      // Not sooner than half the range: a message this old is not there any more.
      while (!messages.empty()) {
        const uint32_t at = below(messages.size());
        sender.returned(messages[at]);
        if (below(4) != 0) messages.erase(messages.begin() + at);
      }
      idle = sent + processed == before ? idle + 1 : 0;
    }
    CHECK(sent >= 30'000);
  }
}

TEST_CASE("credits: a word grows, whatever order its values come in", "[credits]") {
  GrowingWord word;
  CHECK_FALSE(word.move(0));
  CHECK(word.move(3));
  CHECK_FALSE(word.move(2));
  CHECK_FALSE(word.move(3));
  CHECK(word.value() == 3);
  for (uint64_t value = 4; value < 20'000; value += 5) {
    CHECK(word.move(static_cast<uint32_t>(value % imm_values)));
    CHECK_FALSE(word.move(static_cast<uint32_t>((value - 2) % imm_values)));
    CHECK(word.value() == value);
  }
}

TEST_CASE("credits: a word grows from wherever it begins", "[credits]") {
  for (const uint64_t begin : {uint64_t{4095}, uint64_t{1'000'003}, (uint64_t{1} << 40) + 77}) {
    GrowingWord word(begin);
    CHECK(word.value() == begin);
    CHECK_FALSE(word.move(static_cast<uint32_t>(begin % imm_values)));
    CHECK_FALSE(word.move(static_cast<uint32_t>((begin - 1) % imm_values)));
    CHECK(word.move(static_cast<uint32_t>((begin + 2) % imm_values)));
    CHECK(word.value() == begin + 2);
  }
}

TEST_CASE("in flight: bytes and messages stay below their limits, but a large message goes alone", "[credits]") {
  InFlight nic(1000, 3);
  CHECK(nic.acquire(600));
  CHECK_FALSE(nic.acquire(401));
  CHECK(nic.acquire(400));
  CHECK(nic.acquire(0));
  CHECK_FALSE(nic.acquire(0));
  CHECK(nic.messages() == 3);
  nic.release(600);
  CHECK(nic.bytes() == 400);
  CHECK_FALSE(nic.acquire(5000));
  nic.release(400);
  CHECK_FALSE(nic.acquire(5000));
  nic.release(0);
  CHECK(nic.acquire(5000));
  CHECK_FALSE(nic.acquire(1));
  CHECK(nic.bytes() == 5000);
  nic.release(5000);
  CHECK(nic.acquire(~uint64_t{0}));
  CHECK_FALSE(nic.acquire(1));
}

TEST_CASE("send queue: lists keep their order and share a pool", "[credits]") {
  constexpr uint32_t lists = 5, capacity = 40;
  for (uint64_t seed = 1; seed <= test::seeds(); ++seed) {
    std::mt19937_64 random(seed);
    SendQueue queue(lists, capacity);
    std::vector<std::deque<Command>> model(lists);
    uint32_t size = 0, refused = 0;
    for (uint32_t step = 0; step < 5000; ++step) {
      const auto list = static_cast<uint32_t>(random() % lists);
      // Now more come than go, now fewer.
      if (random() % 100 < (step / 500 % 2 == 0 ? 70u : 30u)) {
        const Command command = CommandFields{.epoch = step, .row = list};
        const bool there_is_room = size < capacity;
        REQUIRE(queue.push(list, command) == there_is_room);
        refused += !there_is_room;
        if (there_is_room) model[list].push_back(command), ++size;
      } else if (!model[list].empty()) {
        REQUIRE_FALSE(queue.is_empty(list));
        REQUIRE(queue.front(list) == model[list].front());
        queue.pop(list);
        model[list].pop_front();
        --size;
      }
      REQUIRE(queue.is_empty(list) == model[list].empty());
      REQUIRE(queue.size() == size);
    }
    CHECK(refused > 0);
  }
}

}  // namespace
}  // namespace ucclep::proxy
