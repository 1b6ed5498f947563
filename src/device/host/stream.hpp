// SPDX-License-Identifier: Apache-2.0
// Streams and events of the host device: the operations of a stream run in order, whoever runs them.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "device/host/identities.hpp"
#include "device/host/launch.hpp"

namespace ucclep::executor {

class Pool;
class Capture;
struct Graph;

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

class StreamTable {
 public:
  explicit StreamTable(Pool& pool);

  std::shared_ptr<Stream> create_stream();
  void destroy_stream(Stream* stream);  // what it has to do is done
  std::shared_ptr<Stream> stream(void* handle);
  std::shared_ptr<Event> create_event();
  void destroy_event(Event* event);
  std::shared_ptr<Event> event(void* handle);

  void launch(const std::shared_ptr<Stream>& stream, std::unique_ptr<Launch> launch);
  void copy(const std::shared_ptr<Stream>& stream, void* to, const void* from, size_t bytes);
  void record(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event);
  // The same, but a graph into which it is captured records the event itself.
  void record_at_replay(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event);
  void wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event);
  void begin_capture(const std::shared_ptr<Stream>& stream);
  std::shared_ptr<Graph> end_capture(Stream& stream);
  bool is_captured(const Stream& stream);
  void launch(const Graph& graph, const std::shared_ptr<Stream>& stream);
  ucclEpResult_t synchronize(Stream& stream, int64_t timeout_ms);
  ucclEpResult_t synchronize(Event& event, int64_t timeout_ms);
  float elapsed_ms(Event& begin, Event& end);

  // How many threads of the process use the pool at once, for a gated pool: see all_submitted.
  void add_user(int change);

 private:
  using Lock = std::unique_lock<std::mutex>;
  void enqueue(const std::shared_ptr<Stream>& stream, Operation operation);
  void advance(std::shared_ptr<Stream> stream, Lock& lock);
  bool step(const std::shared_ptr<Stream>& stream, std::vector<std::shared_ptr<Stream>>& ready, Lock& lock);
  void finished(Launch& launch);
  void expect_whole(const Graph& graph);
  using Condition = std::function<bool()>;
  ucclEpResult_t await(const Condition& done, int64_t timeout_ms);
  bool all_submitted();

  Pool& pool_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int users_ = 0;
  std::vector<const Condition*> awaited_;
  std::chrono::steady_clock::time_point last_active_;  // when a user last enqueued something, or returned from a wait
  std::unordered_map<void*, std::shared_ptr<Stream>> streams_;
  std::unordered_set<std::shared_ptr<Stream>> draining_;  // destroyed, with work to do
  std::unordered_map<void*, std::shared_ptr<Event>> events_;
};

}  // namespace ucclep::executor
