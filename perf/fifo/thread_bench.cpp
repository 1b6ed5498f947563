// SPDX-License-Identifier: Apache-2.0
// Threads of the host push.
#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "api.hpp"
#include "base/deadline.hpp"
#include "cpus.hpp"
#include "device/host/host_device.hpp"
#include "fifo/bare_ring.hpp"
#include "fifo/bench.hpp"
#include "fifo/consumer.hpp"
#include "fifo/kernels/arguments.hpp"
#include "proxy/ring_writer.hpp"

namespace ucclep::perf {
namespace {

using Clock = std::chrono::steady_clock;

// Threads with a CPU each, as far as there are enough; joined at the end, whatever happens.
class Threads {
 public:
  Threads(const FifoOptions& options, uint32_t count, const std::function<void(uint32_t)>& body) {
    for (uint32_t i = 0; i < count; ++i) {
      threads_.emplace_back([&options, i, body] {
        const std::span<const int> others = options.other_cpus();
        run_on(others.subspan(i % others.size(), 1));
        body(i);
      });
    }
  }
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::vector<std::thread> threads_;
};

class ThreadBench : public Bench {
 public:
  explicit ThreadBench(const FifoOptions& options) : options_(options), device_(open_host_device(0, one_worker())) {
    run_on(options.reader_cpu());
  }

  std::string name() const override { return "threads of the host"; }
  bool has_order() const override { return false; }  // on a CPU every store is one

  Taken rate(const RateCase& request, uint64_t commands) override {
    const proxy::CommandRings rings(*device_, rings_shape(request), timeout_ns(), &abort_);
    Consumer consumer(rings, request, options_);
    const uint32_t pushes = static_cast<uint32_t>(std::max<uint64_t>(1, commands / request.producers / request.batch));
    const Threads threads(options_, request.producers, [&](uint32_t producer) {
      proxy::RingWriter writer(rings.fifo(), producer % request.rings);
      std::vector<Command> batch(request.batch);
      for (uint32_t i = 0, number = 0; i < pushes; ++i) {
        for (Command& command : batch) command = fifo_command(producer, number++);
        if (!writer.push(batch)) return;  // the consumer misses it
      }
    });
    return consumer.take(uint64_t{pushes} * request.batch * request.producers);
  }

  std::optional<double> bare_rate(const RateCase& request, uint64_t commands) override {
    if (request.producers != 1) return std::nullopt;
    const CommandRingsCapacity capacity(*device_, rings_shape(request));
    BareRing ring(capacity.log2);
    const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
    std::atomic<bool> stop = false;
    const Threads threads(options_, 1, [&](uint32_t) {
      for (uint64_t i = 0; i < commands && !stop.load(std::memory_order_relaxed);) i += ring.push(i);
    });
    Clock::time_point begin{};
    uint64_t value = 0, sum = 0;
    for (uint64_t taken = 0, polls = 1; taken < commands; ++polls) {
      if (ring.pop(&value)) {
        if (taken++ == 0) begin = Clock::now();
        sum += value;
      } else if (polls % (1 << 16) == 0 && deadline.expired()) {
        stop = true;
        throw PerfError("the bare ring did not finish in time");
      }
    }
    if (sum != commands * (commands - 1) / 2) throw PerfError("the bare ring lost a command");
    return static_cast<double>(commands - 1) / std::chrono::duration<double>(Clock::now() - begin).count() * 1e-6;
  }

  double trip(uint32_t rounds, bool, Taken* taken) override {
    const RateCase one;
    const proxy::CommandRings rings(*device_, rings_shape(one), timeout_ns(), &abort_);
    Consumer consumer(rings, one, options_);
    const Threads threads(options_, 1, [&](uint32_t) {
      proxy::RingWriter writer(rings.fifo(), 0);
      for (uint32_t i = 0; i < rounds; ++i) {
        const Command command = fifo_command(0, i);
        if (!writer.push({&command, 1}) || !writer.wait_read()) return;
      }
    });
    const Taken now = consumer.take(rounds);
    taken->commands += now.commands;
    taken->wrong += now.wrong;
    return now.seconds * 1e6 / rounds;
  }

  double flag(uint32_t rounds, bool) override {
    struct alignas(128) Word {
      uint64_t value = 0;
    } there, back;
    const Clock::time_point begin = Clock::now();
    {
      const Threads threads(options_, 1, [&](uint32_t) {
        const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
        for (uint64_t i = 1; i <= rounds; ++i) {
          std::atomic_ref(there.value).store(i, std::memory_order_release);
          for (uint32_t polls = 1; std::atomic_ref(back.value).load(std::memory_order_acquire) < i; ++polls) {
            if (polls % (1 << 16) == 0 && deadline.expired()) return;
          }
        }
      });
      echo_flag(&there.value, &back.value, rounds, options_.timeout_ms);
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / rounds;
  }

 private:
  // No kernel runs.
  static HostDeviceConfig one_worker() {
    HostDeviceConfig config;
    config.workers = 1;
    return config;
  }
  // As large as the rings that it is compared with.
  struct CommandRingsCapacity {
    CommandRingsCapacity(Device& device, const proxy::RingsShape& shape)
        : log2(proxy::CommandRings(device, shape, 1, nullptr).fifo().capacity_log2) {}
    uint32_t log2;
  };
  proxy::RingsShape rings_shape(const RateCase& request) const {
    return {.bulk_log2 = static_cast<uint32_t>(std::bit_width(request.rings - 1)),
            .max_concurrent = request.producers * request.batch,
            .capacity_log2 = static_cast<uint32_t>(options_.capacity_log2)};
  }
  uint64_t timeout_ns() const { return static_cast<uint64_t>(options_.timeout_ms) * 1'000'000; }

  const FifoOptions& options_;
  std::unique_ptr<Device> device_;
  uint32_t abort_ = 0;
};

}  // namespace

std::unique_ptr<Bench> make_thread_bench(const FifoOptions& options) {
  return std::make_unique<ThreadBench>(options);
}

}  // namespace ucclep::perf
