// SPDX-License-Identifier: Apache-2.0
// The SETTINGS of faulty.hpp.
#pragma once
#include <cstdint>
#include <string>

namespace ucclep::transport {

struct FaultSettings {
  static constexpr uint64_t never = 0, any = ~uint64_t{0};
  uint64_t seed = 1;
  uint64_t delay = 40, withhold = 40, repeat = 10;
  bool hide_source = false, hide_length = false;
  uint64_t break_at = never, kill_at = never, outage_at = never, stall_at = never;
  uint64_t ms = 2000;
  uint64_t at = any, peer = any;
};

// Throws Error(ucclEpInvalidArgument) for what faulty.hpp does not list.
FaultSettings parse_faults(const std::string& text);

// What happened at an endpoint so far.
struct FaultStatistics {
  uint64_t writes = 0;                                        // that have left
  uint64_t payloads_overtaken = 0, immediates_overtaken = 0;  // by one of the same connection that was posted later
  uint64_t depth = 0;                                         // by how many at most
  uint64_t withheld = 0, repeated = 0, broken = 0, killed = 0, outages = 0, stalls = 0;
};

}  // namespace ucclep::transport
