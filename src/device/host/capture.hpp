// SPDX-License-Identifier: Apache-2.0
// Capture of streams: what is enqueued in a captured stream becomes a step of a graph, in the order of the calls. A
// stream that waits for an event of a capture is a branch of it from then on. All of this happens under the lock of the
// streams.
#pragma once
#include <memory>
#include <vector>

#include "device/host/stream_state.hpp"

namespace ucclep::executor {

// A replay enqueues the steps in their order, each in the stream of its branch; the first is the one of the launch.
struct Graph {
  struct Step {
    size_t branch;
    Operation operation;
  };
  std::vector<Step> steps;
  size_t branches = 0;
  std::shared_ptr<Event> ended = std::make_shared<Event>();  // of the last replay: replays of a graph do not overlap
  // Of the captures whose operations it has: its own, and those of graphs that were launched into it.
  std::vector<std::shared_ptr<const void>> lifetimes;
};

class Capture {
 public:
  static void begin(const std::shared_ptr<Stream>& origin);
  // The capture is over for all its branches, also when it gives no graph because some were not joined to the origin.
  static std::shared_ptr<Graph> end(Stream& origin);
  // True: the operation is a step now. Refuses what would tie a capture to something outside of it.
  static bool take(const std::shared_ptr<Stream>& stream, Operation& operation);
  // What the graph keeps too, whose operations were launched into this capture.
  void keep_lifetimes_of(const Graph& graph);
  std::weak_ptr<const void> lifetime() const { return lifetimes_.front(); }

 private:
  void add_branch(const std::shared_ptr<Stream>& stream);
  void add_step(Stream& stream, Operation& operation);
  bool joined(const Stream& origin) const;

  bool over_ = false;
  std::vector<std::shared_ptr<const void>> lifetimes_{std::make_shared<char>()};
  std::vector<Graph::Step> steps_;
  std::vector<std::weak_ptr<Stream>> branches_;
  Known work_;  // launches and copies of each branch
};

Operation copy_of(const Operation& operation);

}  // namespace ucclep::executor
