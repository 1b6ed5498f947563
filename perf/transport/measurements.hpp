// SPDX-License-Identifier: Apache-2.0
// All rows of a run of transport_perf, one after the other.
#pragma once
#include <functional>

#include "comparison.hpp"
#include "transport/side.hpp"

namespace ucclep::perf {

struct TransportRow : Comparison {  // thousands of messages a second, or us one way
  TransportRun what;
  const WireOperation* operation = nullptr;  // of the options: which sent the same; NULL: none

  const char* name() const { return what.test == TransportTest::write ? "write" : "trip"; }
  const char* unit() const { return what.test == TransportTest::write ? "k/s" : "us"; }
  double us() const;     // of a run, all its messages
  double ratio() const;  // the median of those of neighbours; 0 without a baseline
};

// Leads a run of all sides.
using Lead = std::function<TransportResult(const TransportRun&)>;

void measure_transport(const Lead& lead, const TransportOptions& options,
                       const std::function<void(const TransportRow&)>& done);

}  // namespace ucclep::perf
