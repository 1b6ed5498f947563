// SPDX-License-Identifier: Apache-2.0
// All rows of a run of transport_perf, one after the other.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "transport/side.hpp"

namespace ucclep::perf {

struct TransportRow {
  TransportRun what;
  std::vector<double> values;  // of each repeat: thousands of messages a second, or us one way
  std::vector<double> bare;    // of the yardstick, if there is one
  uint64_t verified = 0, wrong = 0;

  const char* name() const { return what.test == TransportTest::write ? "write" : "trip"; }
  const char* unit() const { return what.test == TransportTest::write ? "k/s" : "us"; }
  double ratio() const;  // the median of those of neighbours; 0 without a yardstick
};

void measure_transport(Side& side, const TransportOptions& options,
                       const std::function<void(const TransportRow&)>& done);

}  // namespace ucclep::perf
