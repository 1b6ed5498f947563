// SPDX-License-Identifier: Apache-2.0
// The devices of all ranks, driven by one thread: memory, windows that all of them reach, launches and their times.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ceiling/command_line.hpp"
#include "ceiling/kernels/arguments.hpp"
#include "device/device.hpp"

namespace ucclep::perf {

// Device memory of one rank.
class DeviceArray {
 public:
  DeviceArray(Device& device, size_t bytes);
  ~DeviceArray();
  DeviceArray(DeviceArray&& other) noexcept;
  DeviceArray& operator=(DeviceArray&&) = delete;
  unsigned char* data() const { return data_; }

 private:
  Device* device_;
  unsigned char* data_;
};

using Windows = std::vector<std::unique_ptr<SharedMemory>>;  // one per rank

class Machine {
 public:
  explicit Machine(const CeilingOptions& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  int ranks() const { return static_cast<int>(ranks_.size()); }
  const DeviceTraits& traits() const { return ranks_[0].device->traits(); }
  bool shared() const { return sharers_ > 1; }  // a GPU, by several ranks
  // What a rank may use. Kernels of ranks that share a GPU wait for each other, so that they must run side by side.
  unsigned sms() const { return std::max(1u, traits().num_sms / std::max(1u, sharers_)); }
  std::vector<std::string> device_names() const;

  DeviceArray allocate(int rank, size_t bytes) { return {*ranks_[rank].device, bytes}; }
  Windows share(size_t bytes);

  // fill(row, where) makes each row of a rank's memory; look(row, where) sees it.
  void write_rows(int rank, void* rows, size_t row_bytes, size_t count,
                  const std::function<void(size_t row, std::byte* where)>& fill);
  void read_rows(int rank, const void* rows, size_t row_bytes, size_t count,
                 const std::function<void(size_t row, const std::byte* where)>& look);

  // Flags between all ranks, other than those by which they meet, and the bounds of a rank's waits.
  CeilingFlagArgs flags(int rank) const { return flags_at(rank, ranks() * ceiling_flag_stride); }
  CeilingLimit limit(int rank) const;
  // The first of `count` epochs that nobody has used.
  uint64_t new_epochs(uint64_t count);

  // launch(rank, turn, device, stream) on every rank for each of `turns`, with empty caches and once the ranks have
  // met: microseconds of the last turn of the slowest. Throws when a wait was given up.
  using Launch = std::function<void(int rank, int turn, Device& device, ucclEpStream_t stream)>;
  double time(int turns, const Launch& launch);
  // Microseconds that the host spends in the launch of a kernel of flags, without a round, on rank 0.
  double launch_cost(const Kernel& kernel, unsigned blocks);

 private:
  struct Rank {
    std::unique_ptr<Device> device;
    ucclEpStream_t stream = nullptr;
    ucclEpEvent_t begin = nullptr, end = nullptr;
    std::byte* staging = nullptr;
    unsigned char* scratch = nullptr;  // GPUs: what empties the caches
    unsigned char* words = nullptr;    // the abort word and the count of late waits
  };
  CeilingFlagArgs flags_at(int rank, size_t offset) const;
  void synchronize(int rank);
  void empty_caches(int rank);
  void meet(int rank, uint64_t epoch);
  void check_late(int rank);

  const int timeout_ms_;
  std::vector<Rank> ranks_;
  unsigned sharers_ = 0;  // ranks on the GPU of rank 0, which has the most
  Windows flags_;         // those of the meeting, then the others
  uint64_t next_epoch_ = 1;
};

}  // namespace ucclep::perf
