// SPDX-License-Identifier: Apache-2.0
// Lanes push, a thread of the host reads: every command arrives once, in the order of its producer, with what was
// written before it.
#include <catch2/catch.hpp>
#include <map>
#include <thread>
#include <utility>

#include "base/deadline.hpp"
#include "device/host/host_device.hpp"
#include "fifo_kernels.hpp"
#include "proxy/command_rings.hpp"
#include "raw_ring.hpp"
#include "support/test_env.hpp"

namespace ucclep {
namespace {

using proxy::CommandRings;
using proxy::RingReader;
using test::PushArgs;
using test::RawRing;

constexpr int64_t limit_ms = 60'000;
constexpr uint64_t limit_ns = limit_ms * 1'000'000;

struct Shape {
  unsigned wave = 32, grid = 3, block = 128, rounds = 40, run = 2;
  HostDeviceConfig config = {};
};

// A device, a launch, and what its lanes count.
class Producers {
 public:
  explicit Producers(const Shape& shape) : shape_(shape), device_(open_host_device(0, config_of(shape))) {
    args.payload = static_cast<uint64_t*>(device_->alloc(size_t{shape.grid} * shape.block * shape.rounds * 8));
    args.refused = static_cast<uint64_t*>(device_->alloc(64));
    abort_word = reinterpret_cast<uint32_t*>(args.refused + 1);
    args.rings = 1;
    args.rounds = shape.rounds;
    args.run = shape.run;
  }
  ~Producers() {
    device_->free(args.payload);
    device_->free(args.refused);
  }
  Device& device() { return *device_; }
  void launch(const char* kernel) {
    device_->launch({kernel, false}, {shape_.grid, shape_.block, 0}, &args, sizeof args, nullptr);
  }
  bool ends() { return device_->stream_synchronize(nullptr, limit_ms) == ucclEpSuccess; }
  uint64_t payload(uint32_t producer, uint32_t number) const {
    return args.payload[size_t{producer} * shape_.rounds + number];
  }

  PushArgs args{};
  uint32_t* abort_word;

 private:
  static HostDeviceConfig config_of(const Shape& shape) {
    HostDeviceConfig config = shape.config;
    config.wave = shape.wave;
    return config;
  }
  const Shape shape_;
  std::unique_ptr<Device> device_;
};

// What came out of a ring, and what was wrong with it.
struct Received {
  uint64_t commands = 0, damaged = 0, out_of_order = 0, without_payload = 0;
  std::map<std::pair<uint32_t, uint32_t>, int64_t> last;  // by ring and producer: the number of the last command

  void accept(uint32_t ring, const Command& command, const Producers& producers) {
    ++commands;
    const uint32_t number = ~command.epoch(), producer = command.flags() * max_ranks + command.destination();
    damaged += command != test::numbered(producer, number);
    auto [where, fresh] = last.try_emplace({ring, producer}, -1);
    out_of_order += number <= where->second;
    where->second = number;
    without_payload += producers.payload(producer, number) != uint64_t{number} + 1;
  }
  void all_well(uint64_t expected) const {
    CHECK(commands == expected);
    CHECK(damaged == 0);
    CHECK(out_of_order == 0);
    CHECK(without_payload == 0);
  }
};

// Reads all rings in turn, whenever ready() says so, until `expected` commands have come, or none does for too long.
template <class Ready>
Received read_when(Ready&& ready, std::vector<RingReader>& readers, const Producers& producers, uint64_t expected) {
  Received received;
  const Deadline deadline = Deadline::after_ms(limit_ms);
  while (received.commands < expected && !deadline.expired()) {
    if (!ready()) {
      std::this_thread::yield();
      continue;
    }
    for (uint32_t ring = 0; ring < readers.size(); ++ring) {
      const auto commands = readers[ring].poll();
      for (const Command& command : commands) received.accept(ring, command, producers);
      readers[ring].release(commands.size());
    }
  }
  for (RingReader& reader : readers) CHECK(reader.poll().empty());
  return received;
}
Received read_all(std::vector<RingReader>& readers, const Producers& producers, uint64_t expected) {
  return read_when([] { return true; }, readers, producers, expected);
}

uint64_t active_rounds(const Shape& shape) {
  uint64_t active = 0;
  for (uint64_t lane = 0; lane < uint64_t{shape.grid} * shape.block; ++lane) {
    for (uint64_t round = 0; round < shape.rounds; ++round) active += (lane + round) % 5 != 0;
  }
  return active;
}

void arrive(const char* kernel, const Shape& shape, uint64_t expected) {
  Producers producers(shape);
  const uint32_t max_concurrent = shape.grid * shape.block * shape.run;
  CommandRings rings(producers.device(), {.bulk_log2 = 1, .control_log2 = 1, .max_concurrent = max_concurrent},
                     limit_ns, producers.abort_word);
  producers.args.fifo = rings.fifo();
  producers.args.rings = rings.count();
  std::vector<RingReader> readers;
  for (uint32_t ring = 0; ring < rings.count(); ++ring) readers.emplace_back(rings.memory(ring), 64, 32);
  producers.launch(kernel);
  const Received received = read_all(readers, producers, expected);
  CHECK(producers.ends());
  received.all_well(expected);
  CHECK(*producers.args.refused == 0);
}

TEST_CASE("fifo: every command of many lanes arrives once and in order", "[kernel]") {
  for (unsigned wave : {32u, 64u}) {
    INFO("wave " << wave);
    const Shape shape{.wave = wave};
    const uint64_t lanes = uint64_t{shape.grid} * shape.block;
    arrive("fifo_push", shape, active_rounds(shape));
    arrive("fifo_push_run", shape, lanes * shape.rounds);
    uint64_t alone = 0;
    for (uint64_t lane = 0; lane < lanes; ++lane) alone += lane % wave % 7 == 3;
    arrive("fifo_push_lane", shape, alone * shape.rounds);
  }
}

TEST_CASE("fifo: commands arrive whatever the schedule, also where a GPU is stricter", "[kernel]") {
  for (uint64_t seed = 1; seed <= test::seeds(); ++seed) {
    for (unsigned wave : {32u, 64u}) {
      INFO("seed " << seed << ", wave " << wave);
      const Shape shape{
          .wave = wave, .grid = 2, .rounds = 10, .config = {.seed = seed, .lockstep = true, .watchdog_ms = 40'000}};
      arrive("fifo_push", shape, active_rounds(shape));
      arrive("fifo_push_run", shape, uint64_t{shape.grid} * shape.block * shape.rounds);
    }
  }
}

// A small ring that is read only while it is filled above its mark, or nobody has anything left to push: lanes wait for
// room again and again, through laps, changes of parity and the end of 32 bits.
TEST_CASE("fifo: nothing is overwritten in a ring that is always full", "[kernel]") {
  for (uint64_t start : {uint64_t{0}, uint64_t{1000}, (uint64_t{1} << 32) - 700}) {
    for (unsigned wave : {32u, 64u}) {
      INFO("from position " << start << ", wave " << wave);
      const Shape shape{.wave = wave, .grid = 2, .block = 64, .rounds = 40};
      Producers producers(shape);
      RawRing ring(8, start, shape.grid * shape.block);
      producers.args.fifo = ring.fifo();
      std::vector<RingReader> readers;
      readers.emplace_back(ring.memory(), 7, 5);
      producers.launch("fifo_push");
      const uint64_t expected = active_rounds(shape);
      const auto full = [&] {
        const uint64_t head = ring.head();
        return head - ring.position() > ring.fifo().high_water || head == start + expected;
      };
      const Received received = read_when(full, readers, producers, expected);
      CHECK(producers.ends());
      received.all_well(expected);
      CHECK(ring.position() == start + expected);
    }
  }
}

// Nobody reads: all lanes come to wait, until the abort word or their time ends that. Whatever was reserved is there.
void give_up_when_full(bool by_abort) {
  for (unsigned wave : {32u, 64u}) {
    INFO("wave " << wave << (by_abort ? ", abort" : ", timeout"));
    const Shape shape{.wave = wave, .grid = 2, .block = 64, .rounds = 40};
    const uint64_t lanes = uint64_t{shape.grid} * shape.block;
    Producers producers(shape);
    RawRing ring(8, 300, static_cast<uint32_t>(lanes));
    if (!by_abort) ring.fifo().timeout_ns = 50'000'000;
    producers.args.fifo = ring.fifo();
    producers.launch("fifo_push");
    if (by_abort) {
      // Full above the mark: from here on every push ends in a wait.
      const Deadline deadline = Deadline::after_ms(limit_ms);
      while (ring.head() <= 300 + ring.fifo().high_water && !deadline.expired()) std::this_thread::yield();
      ring.abort();
    }
    REQUIRE(producers.ends());
    CHECK(*producers.args.refused == lanes);
    const uint64_t reserved = ring.head() - 300;
    REQUIRE(reserved <= 256);  // else some were overwritten, and would be waited for
    std::vector<RingReader> readers;
    readers.emplace_back(ring.memory(), 64, 1);
    read_all(readers, producers, reserved).all_well(reserved);
  }
}

TEST_CASE("fifo: lanes that wait for room leave when aborted, and leave no hole", "[kernel]") {
  give_up_when_full(true);
}
TEST_CASE("fifo: lanes that wait for room leave when their time is up, and leave no hole", "[kernel]") {
  give_up_when_full(false);
}

TEST_CASE("fifo: a command that is pushed before its payload was written is seen to be", "[kernel]") {
  const Shape shape{.grid = 1, .block = 32, .rounds = 20};
  Producers producers(shape);
  RawRing ring(8, 0, 32);
  producers.args.fifo = ring.fifo();
  std::vector<RingReader> readers;
  readers.emplace_back(ring.memory(), 64, 1);
  producers.launch("fifo_push_too_early");
  const Received received = read_all(readers, producers, shape.rounds);
  CHECK(producers.ends());
  CHECK(received.commands == shape.rounds);
  CHECK(received.without_payload == shape.rounds);
}

}  // namespace
}  // namespace ucclep
