// SPDX-License-Identifier: Apache-2.0
// A stream, an event, and what a stream does.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "device/host/identities.hpp"
#include "device/host/launch.hpp"

namespace ucclep::executor {

class Capture;
struct Stream;

using Known = std::vector<uint64_t>;  // how many operations of each branch of a capture come before

// The k-th record of an event is complete when all that its stream had before it is.
struct Event {
  uint64_t recorded = 0;
  uint64_t completed = 0;
  int64_t time_ns = 0;                         // of the last completed record
  std::vector<std::weak_ptr<Stream>> waiting;  // streams whose next operation waits for a record
  char order = 0;                              // its address is ThreadSanitizer's tag

  // Where it was recorded last in a capture.
  std::shared_ptr<Capture> capture = nullptr;
  std::shared_ptr<Event> in_graph = nullptr;
  Known known = {};
};

struct Operation {
  enum class Kind { launch, copy, record, wait } kind;
  std::unique_ptr<Launch> launch = nullptr;
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
  std::shared_ptr<Event> event = nullptr;
  uint64_t record = 0;
  bool at_replay = false;  // a record that counts as one outside of the graph, whenever it is replayed
};

struct Stream {
  std::deque<Operation> operations;  // the first is under way when busy
  bool busy = false;
  uint64_t enqueued = 0;
  uint64_t completed = 0;
  char order = 0;
  Identities identities;

  std::shared_ptr<Capture> capture = nullptr;  // under way
  size_t branch = 0;
  Known known = {};
};

}  // namespace ucclep::executor
