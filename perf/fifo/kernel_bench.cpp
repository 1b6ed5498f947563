// SPDX-License-Identifier: Apache-2.0
// Lanes of a GPU, or of the host device, push.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "api.hpp"
#include "base/best_effort.hpp"
#include "cpus.hpp"
#include "device/gpu_driver/gpu_device.hpp"
#include "device/host/host_device.hpp"
#include "fifo/bench.hpp"
#include "fifo/consumer.hpp"
#include "fifo/kernels/arguments.hpp"
#include "find_gpu.hpp"

namespace ucclep::perf {
namespace {

constexpr uint32_t block_lanes = 128;

std::unique_ptr<Device> open_device(const FifoOptions& options, const std::string& kind) {
  run_on(options.other_cpus());  // what the device starts shall leave the reader alone
  if (kind == "host") {
    HostDeviceConfig config = HostDeviceConfig::from_environment();
    if (config.workers == 0) config.workers = static_cast<unsigned>(options.other_cpus().size());
    return open_host_device(0, config);
  }
  std::string why;
  const gpu::Driver* driver = find_gpu_driver(kind, &why);
  if (driver == nullptr) throw PerfError(fmt::format("there is no GPU to measure ({})", why));
  return gpu::open_gpu_device(*driver, options.index);
}

// Words between a kernel and the host, a line each.
struct Words {
  enum : size_t { to_host, to_device, ns, abort, late, count };
  static constexpr size_t stride = 16;
};

// No kernel runs any more when this goes, also where the reader threw: the rings go next.
class Running {
 public:
  Running(Device& device, ucclEpStream_t stream, int timeout_ms)
      : device_(device), stream_(stream), timeout_ms_(timeout_ms) {}
  ~Running() {
    best_effort("fifo_perf", "cannot wait for a kernel", [&] { device_.stream_synchronize(stream_, 2 * timeout_ms_); });
  }

 private:
  Device& device_;
  ucclEpStream_t stream_;
  int timeout_ms_;
};

class KernelBench : public Bench {
 public:
  KernelBench(const FifoOptions& options, const std::string& kind)
      : options_(options), device_(open_device(options, kind)) {
    stream_ = device_->stream_create();
    host_ = static_cast<uint64_t*>(device_->alloc_host(Words::count * Words::stride * sizeof(uint64_t)));
    here_ = static_cast<uint64_t*>(device_->alloc(Words::count * Words::stride * sizeof(uint64_t)));
    run_on(options.reader_cpu());
  }
  ~KernelBench() override {
    device_->free(here_);
    device_->free_host(host_);
    device_->stream_destroy(stream_);
  }

  std::string name() const override { return device_->traits().name; }
  bool has_order() const override { return true; }

  Taken rate(const RateCase& request, uint64_t commands) override {
    const uint32_t wave = device_->traits().wave;
    const uint32_t lanes = static_cast<uint32_t>(round_up(request.producers, wave));
    const proxy::CommandRings rings(*device_, rings_shape(request, lanes), timeout_ns(), abort_word());
    Consumer consumer(rings, request, options_);
    FifoRateArgs args{};
    args.fifo = rings.fifo();
    args.rings = request.rings;
    args.producers = request.producers;
    args.batch = request.batch;
    args.pushes = static_cast<uint32_t>(std::max<uint64_t>(1, commands / request.producers / request.batch));
    args.ordered = request.ordered ? 1 : 0;
    args.late = late_word();
    const uint32_t block = std::min(lanes, block_lanes);
    const Running running(*device_, stream_, options_.timeout_ms);
    device_->launch({"fifo_rate", false}, {(lanes + block - 1) / block, block, 0}, &args, sizeof args, stream_);
    const Taken taken = consumer.take(uint64_t{args.pushes} * request.batch * request.producers);
    synchronize();
    return taken;
  }

  std::optional<double> bare_rate(const RateCase&, uint64_t) override { return std::nullopt; }

  double trip(uint32_t rounds, bool ordered, Taken* taken) override {
    const RateCase one;
    const proxy::CommandRings rings(*device_, rings_shape(one, 1), timeout_ns(), abort_word());
    Consumer consumer(rings, one, options_);
    FifoTripArgs args = trip_args(rings, rounds, ordered);
    const Running running(*device_, stream_, options_.timeout_ms);
    launch_lane("fifo_trip", args);
    const Taken now = consumer.take(rounds);
    taken->commands += now.commands;
    taken->wrong += now.wrong;
    return elapsed_us(rounds);
  }

  double flag(uint32_t rounds, bool ordered) override {
    const proxy::CommandRings rings(*device_, rings_shape({}, 1), timeout_ns(), abort_word());
    FifoTripArgs args = trip_args(rings, rounds, ordered);
    args.epoch = std::exchange(next_epoch_, next_epoch_ + rounds);
    args.to_host = host_ + Words::to_host * Words::stride;
    uint64_t* to_device = host_ + Words::to_device * Words::stride;
    args.to_device = to_device;
    const Running running(*device_, stream_, options_.timeout_ms);
    launch_lane("fifo_flag", args);
    echo_flag(args.to_host, to_device, next_epoch_ - 1, options_.timeout_ms);
    return elapsed_us(rounds);
  }

 private:
  proxy::RingsShape rings_shape(const RateCase& request, uint32_t lanes) const {
    return {.bulk_log2 = static_cast<uint32_t>(std::bit_width(request.rings - 1)),
            .max_concurrent = lanes * request.batch,
            .capacity_log2 = static_cast<uint32_t>(options_.capacity_log2)};
  }
  uint64_t timeout_ns() const { return static_cast<uint64_t>(options_.timeout_ms) * 1'000'000; }
  const uint32_t* abort_word() const { return reinterpret_cast<uint32_t*>(here_ + Words::abort * Words::stride); }
  uint32_t* late_word() const { return reinterpret_cast<uint32_t*>(host_ + Words::late * Words::stride); }

  FifoTripArgs trip_args(const proxy::CommandRings& rings, uint32_t rounds, bool ordered) const {
    FifoTripArgs args{};
    args.fifo = rings.fifo();
    args.rounds = rounds;
    args.ordered = ordered ? 1 : 0;
    args.ns = host_ + Words::ns * Words::stride;
    args.late = late_word();
    return args;
  }
  void launch_lane(const char* kernel, const FifoTripArgs& args) {
    device_->launch({kernel, false}, {1, device_->traits().wave, 0}, &args, sizeof args, stream_);
  }
  void synchronize() {
    // A kernel that gives up its waits ends soon after; past that the device itself hangs.
    if (device_->stream_synchronize(stream_, 2 * options_.timeout_ms) != ucclEpSuccess) {
      throw PerfError(fmt::format("a kernel did not finish within {} ms", 2 * options_.timeout_ms));
    }
    if (*late_word() != 0) throw PerfError(fmt::format("a lane timed out after {} ms", options_.timeout_ms));
  }
  double elapsed_us(uint32_t rounds) {
    synchronize();
    return static_cast<double>(host_[Words::ns * Words::stride]) * 1e-3 / rounds;
  }

  const FifoOptions& options_;
  std::unique_ptr<Device> device_;
  ucclEpStream_t stream_ = nullptr;
  uint64_t *host_ = nullptr, *here_ = nullptr;
  uint64_t next_epoch_ = 1;
};

}  // namespace

std::unique_ptr<Bench> make_kernel_bench(const FifoOptions& options, const std::string& kind) {
  return std::make_unique<KernelBench>(options, kind);
}

}  // namespace ucclep::perf
