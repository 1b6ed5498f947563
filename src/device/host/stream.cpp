// SPDX-License-Identifier: Apache-2.0
#include "device/host/stream.hpp"

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "device/host/capture.hpp"
#include "device/host/clock.hpp"
#include "device/host/ordering.hpp"
#include "device/host/pool.hpp"
#include "device/host/stream_agent.hpp"

namespace ucclep::executor {
namespace {

using Clock = std::chrono::steady_clock;

template <class Map>
auto find(Map& map, void* handle, const char* what) {
  const auto it = map.find(handle);
  if (it == map.end()) fail(ucclEpInvalidArgument, "{} is not {} of the host device", handle, what);
  return it->second;
}

}  // namespace

StreamTable::StreamTable(Pool& pool) : pool_(pool) {
  pool.on_finished = [this](Launch& launch) { finished(launch); };
  pool.all_submitted = [this] { return all_submitted(); };
}

std::shared_ptr<Stream> StreamTable::create_stream() {
  auto stream = std::make_shared<Stream>();
  Lock lock(mutex_);
  streams_[stream.get()] = stream;
  return stream;
}

void StreamTable::destroy_stream(Stream* stream) {
  Lock lock(mutex_);
  std::shared_ptr<Stream> destroyed = find(streams_, stream, "a stream");
  streams_.erase(stream);
  if (!destroyed->operations.empty()) draining_.insert(std::move(destroyed));
}

std::shared_ptr<Stream> StreamTable::stream(void* handle) {
  Lock lock(mutex_);
  return find(streams_, handle, "a stream");
}

std::shared_ptr<Event> StreamTable::create_event() {
  auto event = std::make_shared<Event>();
  Lock lock(mutex_);
  events_[event.get()] = event;
  return event;
}

void StreamTable::destroy_event(Event* event) {
  Lock lock(mutex_);
  find(events_, event, "an event");
  events_.erase(event);
}

std::shared_ptr<Event> StreamTable::event(void* handle) {
  Lock lock(mutex_);
  return find(events_, handle, "an event");
}

void StreamTable::launch(const std::shared_ptr<Stream>& stream, std::unique_ptr<Launch> launch) {
  enqueue(stream, {.kind = Operation::Kind::launch, .launch = std::move(launch)});
}

void StreamTable::copy(const std::shared_ptr<Stream>& stream, void* to, const void* from, size_t bytes) {
  enqueue(stream, {.kind = Operation::Kind::copy, .to = to, .from = from, .bytes = bytes});
}

void StreamTable::record(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event) {
  enqueue(stream, {.kind = Operation::Kind::record, .event = event});
}

void StreamTable::record_at_replay(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event) {
  enqueue(stream, {.kind = Operation::Kind::record, .event = event, .at_replay = true});
}

void StreamTable::wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event) {
  enqueue(stream, {.kind = Operation::Kind::wait, .event = event});
}

void StreamTable::begin_capture(const std::shared_ptr<Stream>& stream) {
  Lock lock(mutex_);
  Capture::begin(stream);
}

std::shared_ptr<Graph> StreamTable::end_capture(Stream& stream) {
  Lock lock(mutex_);
  return Capture::end(stream);
}

bool StreamTable::is_captured(const Stream& stream) {
  Lock lock(mutex_);
  return stream.capture != nullptr;
}

std::weak_ptr<const void> StreamTable::lifetime(const Stream& captured) {
  Lock lock(mutex_);
  if (captured.capture == nullptr) return {};
  return captured.capture->lifetime();
}

// In a capture, whose graph replays all of it in order, the launch before is no concern of this one.
void StreamTable::launch(const Graph& graph, const std::shared_ptr<Stream>& stream) {
  expect_whole(graph);
  const bool captured = keep_lifetimes(*stream, graph);
  std::vector<std::shared_ptr<Stream>> branches{stream};
  while (branches.size() < graph.branches) branches.push_back(create_stream());
  if (!captured) wait(stream, graph.ended);
  for (const Graph::Step& step : graph.steps) enqueue(branches[step.branch], copy_of(step.operation));
  if (!captured) record(stream, graph.ended);
  for (size_t i = 1; i < branches.size(); ++i) destroy_stream(branches[i].get());
}

bool StreamTable::keep_lifetimes(const Stream& stream, const Graph& graph) {
  Lock lock(mutex_);
  if (stream.capture == nullptr) return false;
  stream.capture->keep_lifetimes_of(graph);
  return true;
}

void StreamTable::expect_whole(const Graph& graph) {
  Lock lock(mutex_);
  for (const Graph::Step& step : graph.steps) {
    if (step.operation.at_replay && events_.count(step.operation.event.get()) == 0) {
      fail(ucclEpInvalidUsage, "the graph holds operations of a group that was destroyed");
    }
  }
}

void StreamTable::enqueue(const std::shared_ptr<Stream>& stream, Operation operation) {
  order_before(&stream->order);
  Lock lock(mutex_);
  if (Capture::take(stream, operation)) return;
  if (operation.kind == Operation::Kind::launch) {
    operation.launch->stream = stream;
    operation.launch->order = &stream->order;
  }
  if (operation.kind == Operation::Kind::record) operation.record = ++operation.event->recorded;
  if (operation.kind == Operation::Kind::wait) operation.record = operation.event->recorded;
  stream->operations.push_back(std::move(operation));
  ++stream->enqueued;
  last_active_ = Clock::now();
  advance(stream, lock);
}

// Does what the stream can do now, and what becomes possible in other streams by that.
void StreamTable::advance(std::shared_ptr<Stream> stream, Lock& lock) {
  std::vector<std::shared_ptr<Stream>> ready{std::move(stream)};
  while (!ready.empty()) {
    const std::shared_ptr<Stream> next = std::move(ready.back());
    ready.pop_back();
    while (!next->busy && !next->operations.empty() && step(next, ready, lock)) {
      next->operations.pop_front();
      ++next->completed;
    }
    if (next->operations.empty()) draining_.erase(next);
  }
  changed_.notify_all();
}

// The first operation; true when it is complete.
bool StreamTable::step(const std::shared_ptr<Stream>& stream, std::vector<std::shared_ptr<Stream>>& ready, Lock& lock) {
  Operation& operation = stream->operations.front();
  Event* event = operation.event.get();
  switch (operation.kind) {
    case Operation::Kind::launch:
      stream->busy = true;
      stream->identities.expect(size_t{operation.launch->shape.grid} * operation.launch->shape.block);
      operation.launch->identities = &stream->identities;
      pass_on(&stream->order, &operation.launch->begun);
      pool_.submit(*operation.launch);
      return false;
    case Operation::Kind::copy: {
      stream->busy = true;  // others may enqueue meanwhile
      lock.unlock();
      copy_in_stream(&stream->order, operation.to, operation.from, operation.bytes);
      lock.lock();
      stream->busy = false;
      return true;
    }
    case Operation::Kind::record:
      pass_on(&stream->order, &event->order);
      event->completed = operation.record;
      event->time_ns = now_ns();
      for (const std::weak_ptr<Stream>& waiting : event->waiting) {
        if (auto other = waiting.lock()) ready.push_back(std::move(other));
      }
      event->waiting.clear();
      return true;
    case Operation::Kind::wait:
      if (event->completed < operation.record) {
        event->waiting.push_back(stream);
        return false;
      }
      pass_on(&event->order, &stream->order);
      return true;
  }
  return true;
}

void StreamTable::finished(Launch& launch) {
  const std::shared_ptr<Stream> stream = launch.stream;
  free_in_stream(&stream->order, launch.args.release());
  Lock lock(mutex_);
  stream->operations.pop_front();
  ++stream->completed;
  stream->busy = false;
  advance(stream, lock);
}

ucclEpResult_t StreamTable::synchronize(Stream& stream, int64_t timeout_ms) {
  uint64_t target = 0;
  {
    Lock lock(mutex_);
    target = stream.enqueued;
  }
  const ucclEpResult_t result = await([&stream, target] { return stream.completed >= target; }, timeout_ms);
  if (result == ucclEpSuccess) order_after(&stream.order);
  return result;
}

ucclEpResult_t StreamTable::synchronize(Event& event, int64_t timeout_ms) {
  uint64_t target = 0;
  {
    Lock lock(mutex_);
    target = event.recorded;
  }
  const ucclEpResult_t result = await([&event, target] { return event.completed >= target; }, timeout_ms);
  if (result == ucclEpSuccess) order_after(&event.order);
  return result;
}

ucclEpResult_t StreamTable::await(const Condition& done, int64_t timeout_ms) {
  constexpr int64_t longest_ms = int64_t{1} << 40;  // beyond all clocks
  const auto deadline = Clock::now() + std::chrono::milliseconds(std::min(timeout_ms, longest_ms));
  Lock lock(mutex_);
  if (done()) return ucclEpSuccess;
  awaited_.push_back(&done);
  const bool in_time = changed_.wait_until(lock, deadline, done);
  std::erase(awaited_, &done);
  if (in_time) last_active_ = Clock::now();  // who polls in vain must not keep the gate shut
  return in_time ? ucclEpSuccess : ucclEpTimeout;
}

// When every user waits nothing more is going to be submitted: so a schedule replays. A user may also wait for
// something else than the pool, such as a word that a kernel stores: then time has to tell.
bool StreamTable::all_submitted() {
  constexpr auto patience = std::chrono::milliseconds(10);        // while somebody waits
  constexpr auto long_patience = std::chrono::milliseconds(200);  // while nobody does
  Lock lock(mutex_);
  const auto waiting =
      std::count_if(awaited_.begin(), awaited_.end(), [](const Condition* done) { return !(*done)(); });
  return waiting >= users_ || Clock::now() - last_active_ >= (waiting > 0 ? patience : long_patience);
}

float StreamTable::elapsed_ms(Event& begin, Event& end) {
  Lock lock(mutex_);
  for (const Event* event : {&begin, &end}) {
    if (event->recorded == 0) fail(ucclEpInvalidUsage, "event_elapsed: an event was never recorded");
    if (event->completed != event->recorded)
      fail(ucclEpInProgress, "event_elapsed: an event's record is not complete yet");
  }
  return static_cast<float>(end.time_ns - begin.time_ns) * 1e-6f;
}

void StreamTable::add_user(int change) {
  Lock lock(mutex_);
  users_ += change;
}

}  // namespace ucclep::executor
