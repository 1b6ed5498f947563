// SPDX-License-Identifier: Apache-2.0
// Streams and events of the host device: the operations of a stream run in order, whoever runs them.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "device/host/launch.hpp"
#include "device/host/stream_state.hpp"

namespace ucclep::executor {

class Pool;
struct Graph;

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
  std::weak_ptr<const void> lifetime(const Stream& captured);
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
  bool keep_lifetimes(const Stream& stream, const Graph& graph);  // true: the stream is captured
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
