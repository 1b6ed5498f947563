// SPDX-License-Identifier: Apache-2.0
// post and poll allocate nothing. Every malloc of the process goes through here; a thread counts its own while asked
// to.
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "base/deadline.hpp"
#include "support/test_env.hpp"
#include "transport/payload.hpp"

namespace {
thread_local bool counting = false;
thread_local unsigned counted = 0;
}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
  if (counting) ++counted;
  return __libc_malloc(bytes);
}
}

namespace ucclep::test {

TEST_CASE("transport: post and poll allocate nothing", "[transport]") {
  run_team([](Member& me) {
    const int peer = 1 - me.rank();
    const unsigned writes = reduced() ? 500 : 5000;  // a bad link takes some milliseconds for each
    std::array<transport::Operation, 8> chain;
    for (size_t i = 0; i < chain.size(); ++i) {
      chain[i] = Member::with_imm(me.write(peer, 0, 4096, 1000), static_cast<uint32_t>(me.rank()));
    }
    std::array<transport::Completion, 32> completions;
    unsigned posted = 0, done = 0, arrived = 0;
    const char* failed = nullptr;
    // No barrier here: who waits in one polls, and would take what arrives from a peer that has left it already.
    me.post(me.rank());
    me.sleep_until_word(peer);
    const auto one_round = [&](unsigned goal) {
      const Deadline deadline = Deadline::after_ms(60000);
      while ((done < posted || posted < goal || arrived < goal) && failed == nullptr && !deadline.expired()) {
        if (posted < goal) posted += me.endpoint().post(static_cast<uint32_t>(peer), chain);
        const uint32_t count = me.endpoint().poll(completions);
        for (uint32_t i = 0; i < count; ++i) {
          const transport::Completion& completion = completions[i];
          arrived += completion.kind == UCCLEP_COMPLETION_ARRIVAL;
          done += completion.kind == UCCLEP_COMPLETION_DONE;
          if (completion.kind == UCCLEP_COMPLETION_ERROR) failed = completion.words;
        }
      }
    };
    // The first operations may set up what all later ones use.
    one_round(64);
    counting = true;
    one_round(writes);
    counting = false;
    check(failed == nullptr, fmt::format("a write failed: {}", failed == nullptr ? "" : failed));
    check(counted == 0, fmt::format("{} allocations in {} writes", counted, writes));
    check(done >= writes && arrived >= writes,
          fmt::format("of {} writes {} ended and {} arrived", writes, done, arrived));
    me.barrier();
  });
}

}  // namespace ucclep::test
