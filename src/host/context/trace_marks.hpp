// SPDX-License-Identifier: Apache-2.0
// What the marks that kernels left (ucclep/device/trace.hpp) say of a group's operations of one kind.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ucclep/device/layout/trace.hpp"

namespace ucclep {

// Times are of the device's clock.
struct TracedStep {
  Mark mark;  // that ends it
  uint64_t begin, end;

  bool operator==(const TracedStep&) const = default;
};

struct TracedOperation {
  uint64_t seq, begin;
  std::vector<TracedStep> steps;  // those that it has, one after the other

  uint64_t end() const { return steps.empty() ? begin : steps.back().end; }
  bool ended() const { return !steps.empty() && steps.back().mark == Mark::end; }
};

// By sequence number. An operation begins with the first of its marks, whichever it is: nothing orders what two warps
// read off the clock.
std::vector<TracedOperation> operations_in(std::span<const TraceEntry> ring);

}  // namespace ucclep
