// SPDX-License-Identifier: Apache-2.0
// The launches of a group that may still run. Not all of them are ordered: routing counts, say, may be taken on one
// stream while an operation runs on another. So there is an event for each stream.
#pragma once
#include <vector>

#include "base/deadline.hpp"
#include "device/device.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

class WorkInFlight {
 public:
  explicit WorkInFlight(Device& device) : device_(device) {}
  ~WorkInFlight();
  WorkInFlight(const WorkInFlight&) = delete;
  WorkInFlight& operator=(const WorkInFlight&) = delete;

  // To be recorded behind a launch, and asked for before it, since making one may fail. captured: each replay records
  // it, on the stream on which the graph is launched, and nothing else does.
  ucclEpEvent_t event_of(ucclEpStream_t stream, bool captured);

  // ucclEpSuccess: all of it has ended.
  ucclEpResult_t wait(Deadline deadline) const;

 private:
  struct Last {
    ucclEpStream_t stream;
    bool captured;
    ucclEpEvent_t event;
  };
  Device& device_;
  std::vector<Last> last_;  // few: programs have few streams at a time, and use their addresses again
};

}  // namespace ucclep
