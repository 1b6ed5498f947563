// SPDX-License-Identifier: Apache-2.0
// One copy kernel over one placement: its memory, its launches, and whether every row came out right.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ceiling/machine.hpp"
#include "ceiling/placement.hpp"
#include "verify.hpp"

namespace ucclep::perf {

enum class Operation {
  push,         // tokens into outputs
  pull,         // sums of rows that lie at their receivers
  ll_dispatch,  // tokens as lines, copied to the output
  ll_cast,      // the same, bf16 to fp8 with scales on the way
  ll_combine,   // rows back as lines, summed
};

struct CopyCase {
  Operation operation;
  size_t row_bytes;  // as rows arrive
  int rounds;        // in one launch, lines only
  unsigned sms;
  bool corrupt = false;
};

class CopyRun {
 public:
  CopyRun(Machine& machine, const Shape& shape, const Placement& placement, const CopyCase& request);
  // Microseconds per round of each timed launch.
  std::vector<double> times(int warmup, int iterations);
  // Of the last round.
  Tally verify();

 private:
  // A rank reads `inputs_` inputs in turn, so that caches are cold.
  struct Memory {
    DeviceArray input, output, places, origins, copies;
  };
  bool combines() const { return case_.operation == Operation::pull || case_.operation == Operation::ll_combine; }
  bool casts() const { return case_.operation == Operation::ll_cast; }
  bool lines() const { return case_.operation != Operation::push && case_.operation != Operation::pull; }
  size_t input_rows() const;  // of one input
  size_t input_row_bytes() const;
  size_t output_rows() const;  // that are allocated
  size_t landing_bytes() const;
  void allocate();
  void fill(int rank);
  void row_of(int input, int source, int token, int part, std::byte* row) const;  // as it is given
  void arrival_of(int input, int source, int token, std::byte* row) const;        // of a token
  void sum_of(int input, int source, int token, std::byte* row) const;
  CeilingCopyArgs args(int rank, int launch, uint64_t epoch) const;
  std::vector<int32_t> origins_of_output(int rank) const;  // source * tokens + token of each row
  LaunchShape launch_shape() const;
  double launch();

  Machine& machine_;
  const Shape& shape_;
  const Placement& placement_;
  const CopyCase case_;
  int inputs_;
  Windows windows_;
  std::vector<Memory> memory_;  // of each rank
  int launches_ = 0;
};

}  // namespace ucclep::perf
