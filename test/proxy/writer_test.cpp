// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <thread>

#include "base/deadline.hpp"
#include "raw_ring.hpp"
#include "support/test_env.hpp"

namespace ucclep {
namespace {

using proxy::RingReader;
using proxy::RingWriter;
using test::numbered;
using test::RawRing;

TEST_CASE("fifo: commands of threads arrive once and in order", "[writer]") {
  constexpr uint32_t threads = 4, batch = 3;
  const uint32_t rounds = test::reduced() ? 1000 : 10'000;
  RawRing ring(5, (uint64_t{1} << 32) - 50, threads * batch);
  std::vector<std::thread> writers;
  std::atomic<uint32_t> refused{0};
  for (uint32_t t = 0; t < threads; ++t) {
    writers.emplace_back([&, t] {
      RingWriter writer(ring.fifo(), 0);
      for (uint32_t round = 0; round < rounds; ++round) {
        Command commands[batch];
        for (uint32_t i = 0; i < batch; ++i) commands[i] = numbered(t, round * batch + i);
        refused += !writer.push(commands);
      }
      refused += !writer.wait_read();
    });
  }
  RingReader reader(ring.memory(), 16, 8);
  std::vector<uint32_t> next(threads);
  uint64_t count = 0, wrong = 0;
  const Deadline deadline = Deadline::after_ms(60'000);
  while (count < uint64_t{threads} * rounds * batch && !deadline.expired()) {
    const auto commands = reader.poll();
    for (const Command& command : commands)
      wrong += command != numbered(command.destination(), next[command.destination()]++);
    reader.release(commands.size());
    count += commands.size();
    if (commands.empty()) std::this_thread::yield();
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(count == uint64_t{threads} * rounds * batch);
  CHECK(wrong == 0);
  CHECK(refused == 0);
  CHECK(reader.poll().empty());
}

TEST_CASE("fifo: a thread that waits for room leaves when aborted or late", "[writer]") {
  for (bool by_abort : {true, false}) {
    RawRing ring(3, 13, 2);
    if (by_abort) {
      ring.abort();
    } else {
      ring.fifo().timeout_ns = 10'000'000;
    }
    RingWriter writer(ring.fifo(), 0);
    const Command pair[] = {numbered(0, 0), numbered(0, 1)};
    for (int i = 0; i < 3; ++i) CHECK(writer.push(pair));
    CHECK_FALSE(writer.push(pair));
    CHECK_FALSE(writer.wait_read());
    RingReader reader(ring.memory(), 16, 1);
    CHECK(reader.poll().size() == 8);  // written although there was no going on
  }
}

}  // namespace
}  // namespace ucclep
