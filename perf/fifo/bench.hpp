// SPDX-License-Identifier: Apache-2.0
// What fifo_perf measures, of lanes of a device or of threads of the host. The thread that calls is the reader.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fifo/command_line.hpp"

namespace ucclep::perf {

struct RateCase {
  uint32_t producers = 1, rings = 1, batch = 1;
  bool ordered = false;
};

// What a reader took.
struct Taken {
  uint64_t commands = 0, wrong = 0;
  double seconds = 0;  // from the first commands to the last
  uint64_t first = 0;  // commands with which the time began

  double millions_per_second() const { return static_cast<double>(commands - first) / seconds * 1e-6; }
};

class Bench {
 public:
  virtual ~Bench() = default;
  virtual std::string name() const = 0;
  virtual bool has_order() const = 0;  // whether a push can be had without an order
  virtual Taken rate(const RateCase& request, uint64_t commands) = 0;
  // M/s of a bare ring with the same batches; none where there are several producers, or no such ring.
  virtual std::optional<double> bare_rate(const RateCase& request, uint64_t commands) = 0;
  // Microseconds of a round; what was taken is added to *taken.
  virtual double trip(uint32_t rounds, bool ordered, Taken* taken) = 0;
  virtual double flag(uint32_t rounds, bool ordered) = 0;
};

// kind: cuda, hip, host, threads.
std::unique_ptr<Bench> make_kernel_bench(const FifoOptions& options, const std::string& kind);
std::unique_ptr<Bench> make_thread_bench(const FifoOptions& options);

}  // namespace ucclep::perf
