// SPDX-License-Identifier: Apache-2.0
// Messages of the channel at the proxies: any order, twice, and over many times the range of a truncated number.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "proxy/channel.hpp"
#include "support/test_env.hpp"

namespace ucclep::proxy {
namespace {

constexpr auto opens_nothing = [](uint64_t number) { FAIL_CHECK("signal " << number << " was delivered"); };

TEST_CASE("messages: a signal is delivered behind all that came before it", "[messages]") {
  MessagesIn in;
  uint64_t opened = 0;
  const auto open = [&](uint64_t number) { opened = number; };
  const auto comes = [&](uint32_t value, bool is_signal) {
    const uint64_t number = in.arrive(value, is_signal);
    if (number != 0) in.place(number);
    return number;
  };
  CHECK(comes(3, true) == 3);
  CHECK(comes(2, false) == 2);
  in.advance(opens_nothing);
  CHECK(in.in_order() == 0);
  CHECK(comes(3, true) == 0);  // twice
  CHECK(in.arrive(1, false) == 1);
  CHECK(in.arrive(1, false) == 0);
  in.advance(opens_nothing);  // the first has come, and lies elsewhere still
  in.place(1);
  in.advance(open);
  CHECK(opened == 3);
  CHECK(in.in_order() == 3);
  for (const uint32_t old : {1u, 2u, 3u, 0u}) CHECK(comes(old, true) == 0);
  CHECK(comes(3 + channel_window + 1, true) == 0);  // none that can be under way
  CHECK(comes(3 + channel_window, true) == 3 + channel_window);
  in.advance(opens_nothing);
}

TEST_CASE("messages: a sender knows by the low bits which is meant, and what is placed", "[messages]") {
  MessagesOut out;
  CHECK(out.all_placed());
  CHECK(out.number_of(0) == 0);
  CHECK(out.number_of(channel_window) == channel_window);
  CHECK(out.number_of(channel_window + 1) == 0);
  out.accept(2);
  out.accept(1);
  CHECK_FALSE(out.all_placed());
  CHECK(out.placed(1));
  CHECK_FALSE(out.placed(1));
  CHECK_FALSE(out.all_placed());
  CHECK(out.number_of(1) == 0);
  CHECK(out.placed(2));
  CHECK(out.all_placed());
}

TEST_CASE("messages: both ends agree through all orders", "[messages]") {
  for (uint64_t seed = 1; seed <= 5 * test::seeds(); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    MessagesIn in;
    MessagesOut out;
    uint64_t sent = 0, opened = 0, signals = 0;
    std::vector<uint64_t> wire;
    const auto is_signal = [](uint64_t number) { return number % 3 == 0; };
    while (opened < 3 * uint64_t{imm_values}) {
      while (sent < out.placed() + channel_window && random() % 4 != 0) {
        ++sent;
        REQUIRE(out.number_of(static_cast<uint32_t>(sent)) == sent);
        out.accept(sent);
        signals += is_signal(sent) ? 1 : 0;
        wire.insert(wire.end(), 1 + random() % 2, sent);
      }
      std::shuffle(wire.begin(), wire.end(), random);
      for (size_t n = random() % (wire.size() + 1); n > 0; --n) {
        const uint64_t number = wire.back();
        wire.pop_back();
        const uint64_t fresh = in.arrive(static_cast<uint32_t>(number % imm_values), is_signal(number));
        REQUIRE((fresh == 0 || fresh == number));
        if (fresh != 0) in.place(fresh);
        in.advance([&](uint64_t next) {
          REQUIRE((is_signal(next) && next > opened && next <= sent));
          opened = next;
          --signals;
        });
      }
      if (random() % 2 == 0) out.placed(static_cast<uint32_t>(in.in_order() % imm_values));
    }
    CHECK(signals < channel_window);
  }
}

}  // namespace
}  // namespace ucclep::proxy
