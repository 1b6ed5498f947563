// SPDX-License-Identifier: Apache-2.0
#include "ceiling/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "api.hpp"
#include "device/gpu_driver/gpu_device.hpp"
#include "device/host/host_device.hpp"
#include "find_gpu.hpp"
#include "options.hpp"

namespace ucclep::perf {
namespace {

constexpr size_t staging_bytes = 16 << 20;
constexpr size_t scratch_half_bytes = size_t{128} << 20;
constexpr size_t late_offset = 128;
constexpr size_t word_bytes = 256;
// Within this time of the launch of its meeting a rank's measured kernel is enqueued, too.
constexpr uint64_t meeting_delay_ns = 100'000;  // after the caches were emptied
constexpr int host_ranks = 4;

std::vector<std::unique_ptr<Device>> open_devices(const CeilingOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  if (options.device == "host") {
    const int ranks = options.ranks > 0 ? options.ranks : host_ranks;
    for (int i = 0; i < ranks; ++i) devices.push_back(open_host_device(i, HostDeviceConfig::from_environment()));
    return devices;
  }
  std::string why;
  const gpu::Driver* driver = find_gpu_driver(options.device, &why);
  if (driver == nullptr) {
    throw PerfError(fmt::format("there is no GPU to measure ({}); --device host runs the kernels on the CPU", why));
  }
  const int there = driver->device_count();
  const int ranks = options.ranks > 0 ? options.ranks : std::min<int>(there, ceiling_max_ranks);
  if (ranks < 2) {
    throw UsageError("there is 1 GPU, and a bound needs at least 2 ranks: -g 2 --share-gpus puts both on it");
  }
  if (ranks > there && !options.share_gpus) {
    throw UsageError(fmt::format(
        "-g {}: this machine has {} GPUs, and each rank needs one; use --share-gpus to let ranks share them", ranks,
        there));
  }
  for (int i = 0; i < ranks; ++i) devices.push_back(gpu::open_gpu_device(*driver, i % there));
  return devices;
}

}  // namespace

DeviceArray::DeviceArray(Device& device, size_t bytes)
    : device_(&device), data_(static_cast<unsigned char*>(device.alloc(bytes))) {}
DeviceArray::DeviceArray(DeviceArray&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
DeviceArray::~DeviceArray() {
  if (data_ != nullptr) device_->free(data_);
}

Machine::Machine(const CeilingOptions& options) : timeout_ms_(options.timeout_ms) {
  for (std::unique_ptr<Device>& device : open_devices(options)) {
    Rank& rank = ranks_.emplace_back();
    rank.device = std::move(device);
    rank.stream = rank.device->stream_create();
    rank.begin = rank.device->event_create();
    rank.end = rank.device->event_create();
    rank.staging = static_cast<std::byte*>(rank.device->alloc_host(staging_bytes));
    rank.words = static_cast<unsigned char*>(rank.device->alloc(word_bytes));
    if (rank.device->traits().kind != UCCLEP_DEVICE_HOST) {
      rank.scratch = static_cast<unsigned char*>(rank.device->alloc(2 * scratch_half_bytes));
    }
  }
  for (const Rank& rank : ranks_) {
    sharers_ += rank.device->traits().kind != UCCLEP_DEVICE_HOST &&
                rank.device->traits().index == ranks_[0].device->traits().index;
  }
  flags_ = share(2 * ranks() * ceiling_flag_stride);
}

Machine::~Machine() {
  for (Rank& rank : ranks_) {
    rank.device->free(rank.words);
    if (rank.scratch != nullptr) rank.device->free(rank.scratch);
    rank.device->free_host(rank.staging);
    rank.device->event_destroy(rank.end);
    rank.device->event_destroy(rank.begin);
    rank.device->stream_destroy(rank.stream);
  }
}

std::vector<std::string> Machine::device_names() const {
  std::vector<std::string> names;
  for (const Rank& rank : ranks_) names.push_back(rank.device->traits().name);
  return names;
}

Windows Machine::share(size_t bytes) {
  Windows windows;
  for (Rank& owner : ranks_) {
    windows.push_back(owner.device->share(bytes));
    for (Rank& peer : ranks_) {
      if (&peer != &owner) peer.device->allow(*windows.back());
    }
  }
  return windows;
}

void Machine::synchronize(int rank) {
  Rank& r = ranks_[rank];
  // A kernel that gives up its waits ends soon after; past that the device itself hangs.
  if (r.device->stream_synchronize(r.stream, 2 * timeout_ms_) != ucclEpSuccess) {
    throw PerfError(fmt::format("rank {} did not finish within {} ms", rank, 2 * timeout_ms_));
  }
}

void Machine::write_rows(int rank, void* rows, size_t row_bytes, size_t count,
                         const std::function<void(size_t, std::byte*)>& fill) {
  Rank& r = ranks_[rank];
  const size_t portion = std::max<size_t>(1, staging_bytes / row_bytes);
  for (size_t first = 0; first < count; first += portion) {
    const size_t end = std::min(count, first + portion);
    for (size_t row = first; row < end; ++row) fill(row, r.staging + (row - first) * row_bytes);
    r.device->memcpy_async(static_cast<std::byte*>(rows) + first * row_bytes, r.staging, (end - first) * row_bytes,
                           r.stream);
    synchronize(rank);
  }
}

void Machine::read_rows(int rank, const void* rows, size_t row_bytes, size_t count,
                        const std::function<void(size_t, const std::byte*)>& look) {
  Rank& r = ranks_[rank];
  const size_t portion = std::max<size_t>(1, staging_bytes / row_bytes);
  for (size_t first = 0; first < count; first += portion) {
    const size_t end = std::min(count, first + portion);
    r.device->memcpy_async(r.staging, static_cast<const std::byte*>(rows) + first * row_bytes,
                           (end - first) * row_bytes, r.stream);
    synchronize(rank);
    for (size_t row = first; row < end; ++row) look(row, r.staging + (row - first) * row_bytes);
  }
}

CeilingLimit Machine::limit(int rank) const {
  unsigned char* words = ranks_[rank].words;
  return {static_cast<uint64_t>(timeout_ms_) * 1'000'000, reinterpret_cast<const uint32_t*>(words),
          reinterpret_cast<uint32_t*>(words + late_offset)};
}

CeilingFlagArgs Machine::flags_at(int rank, size_t offset) const {
  CeilingFlagArgs args{};
  args.ranks = static_cast<uint32_t>(ranks());
  args.rank = static_cast<uint32_t>(rank);
  for (int r = 0; r < ranks(); ++r) args.flags[r] = static_cast<unsigned char*>(flags_[r]->data()) + offset;
  args.limit = limit(rank);
  return args;
}

uint64_t Machine::new_epochs(uint64_t count) {
  return std::exchange(next_epoch_, next_epoch_ + count);
}

void Machine::meet(int rank, uint64_t epoch) {
  constexpr Kernel kernel{"ceiling_meet", false};
  CeilingFlagArgs args = flags_at(rank, 0);
  args.epoch = epoch;
  args.delay_ns = meeting_delay_ns;
  Rank& r = ranks_[rank];
  r.device->launch(kernel, {1, r.device->traits().wave, 0}, &args, sizeof args, r.stream);
}

void Machine::check_late(int rank) {
  uint32_t late = 0;
  read_rows(rank, ranks_[rank].words + late_offset, sizeof late, 1,
            [&](size_t, const std::byte* where) { std::memcpy(&late, where, sizeof late); });
  if (late > 0) throw PerfError(fmt::format("rank {}: {} warps timed out after {} ms", rank, late, timeout_ms_));
}

void Machine::empty_caches(int rank) {
  Rank& r = ranks_[rank];
  if (r.scratch != nullptr)
    r.device->memcpy_async(r.scratch + scratch_half_bytes, r.scratch, scratch_half_bytes, r.stream);
}

double Machine::time(int turns, const Launch& launch) {
  const uint64_t epoch = new_epochs(1);
  // All meetings first: a driver that loads a kernel at its first launch may wait for what runs on the device.
  for (int r = 0; r < ranks(); ++r) {
    empty_caches(r);
    meet(r, epoch);
  }
  for (int r = 0; r < ranks(); ++r) {
    Rank& rank = ranks_[r];
    for (int turn = 0; turn + 1 < turns; ++turn) launch(r, turn, *rank.device, rank.stream);
    rank.device->event_record(rank.begin, rank.stream);
    launch(r, turns - 1, *rank.device, rank.stream);
    rank.device->event_record(rank.end, rank.stream);
  }
  double slowest = 0;
  for (int r = 0; r < ranks(); ++r) {
    synchronize(r);
    check_late(r);
    slowest = std::max(slowest, ranks_[r].device->event_elapsed_ms(ranks_[r].begin, ranks_[r].end) * 1e3);
  }
  return slowest;
}

double Machine::launch_cost(const Kernel& kernel, unsigned blocks) {
  using Clock = std::chrono::steady_clock;
  const CeilingFlagArgs args = flags(0);
  Rank& rank = ranks_[0];
  const auto begin = Clock::now();
  rank.device->launch(kernel, {blocks, rank.device->traits().wave, 0}, &args, sizeof args, rank.stream);
  const std::chrono::duration<double, std::micro> spent = Clock::now() - begin;
  synchronize(0);
  return spent.count();
}

}  // namespace ucclep::perf
