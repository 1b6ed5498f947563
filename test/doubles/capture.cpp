// SPDX-License-Identifier: Apache-2.0
#include "doubles/capture.hpp"

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "doubles/exports.hpp"

namespace ucclep::doubles {
namespace {

struct Graph {
  Stream origin;
  int mode;
  std::thread::id thread;
  bool broken = false;
  std::vector<Step> steps;
};
using SharedGraph = std::shared_ptr<Graph>;

std::mutex mutex;
std::map<Stream, SharedGraph> captures;
std::map<Event, SharedGraph> events;  // recorded last in a capture, which may have ended
thread_local int thread_mode = test::capture_global;

template <class Map>
auto find(const Map& map, typename Map::key_type key) {
  const auto found = map.find(key);
  return found == map.end() ? typename Map::mapped_type() : found->second;
}

}  // namespace

void enqueue(Stream stream, Step step) {
  Gpu& gpu = current_gpu();
  {
    const std::lock_guard lock(mutex);
    if (const SharedGraph graph = find(captures, stream)) {
      graph->steps.push_back(std::move(step));
      return;
    }
  }
  step(*gpu.device, stream);
}

bool is_captured(Stream stream) {
  const std::lock_guard lock(mutex);
  return captures.count(stream) != 0;
}

bool capture_record(Event event, Stream stream) {
  const std::lock_guard lock(mutex);
  const SharedGraph graph = find(captures, stream);
  if (graph == nullptr) {
    events.erase(event);
    return false;
  }
  events[event] = graph;
  return true;
}

bool capture_wait(Stream stream, Event event) {
  const std::lock_guard lock(mutex);
  const SharedGraph graph = find(events, event);
  const SharedGraph own = find(captures, stream);
  expect(own == nullptr || own == graph, capture_unsupported);  // a graph waits for nothing outside
  if (graph == nullptr) return false;
  expect(captures.count(graph->origin) != 0, captured_event);
  captures[stream] = graph;
  return true;
}

void expect_not_captured(Event event) {
  const std::lock_guard lock(mutex);
  expect(events.count(event) == 0, captured_event);
}

void forget_captured(Event event) {
  const std::lock_guard lock(mutex);
  events.erase(event);
}

void expect_no_capture() {
  if (thread_mode == test::capture_relaxed) return;
  const std::lock_guard lock(mutex);
  bool forbidden = false;
  for (const auto& [stream, graph] : captures) {
    const bool own = graph->thread == std::this_thread::get_id() && graph->mode != test::capture_relaxed;
    if (!own && graph->mode != test::capture_global) continue;
    graph->broken = true;
    forbidden = true;
  }
  expect(!forbidden, capture_unsupported);
}

Code thread_capture_mode(int* mode) {
  return answer(__func__, [&] { std::swap(thread_mode, *mode); });
}

Code stream_is_capturing(Stream stream, int* status) {
  return answer(__func__, [&] {
    constexpr int capture_active = 1;
    current_gpu();
    *status = is_captured(stream) ? capture_active : capture_none;
  });
}

Code begin_capture(void* stream, int mode) {
  return answer(__func__, [&] {
    const auto origin = static_cast<Stream>(stream);
    expect(origin != nullptr, capture_unsupported);  // the default stream
    const std::lock_guard lock(mutex);
    expect(captures.count(origin) == 0, capture_unsupported);
    captures[origin] = std::make_shared<Graph>(Graph{origin, mode, std::this_thread::get_id(), false, {}});
  });
}

Code end_capture(void* stream, void** graph) {
  return answer(__func__, [&] {
    const std::lock_guard lock(mutex);
    const SharedGraph captured = find(captures, static_cast<Stream>(stream));
    expect(captured != nullptr && captured->origin == stream, capture_unmatched);
    std::erase_if(captures, [&](const auto& entry) { return entry.second == captured; });
    expect(!captured->broken, capture_invalidated);
    *graph = new SharedGraph(captured);
    ++live_objects;
  });
}

Code graph_instantiate(void** executable, void* graph, unsigned long long flags) {
  return answer(__func__, [&] {
    expect(graph != nullptr && flags == 0, invalid_value);
    expect_no_capture();
    *executable = new SharedGraph(*static_cast<SharedGraph*>(graph));
    ++live_objects;
  });
}

Code graph_launch(void* executable, void* stream) {
  return answer(__func__, [&] {
    expect(executable != nullptr, invalid_handle);
    Device& device = *current_gpu().device;
    for (const Step& step : (*static_cast<SharedGraph*>(executable))->steps) step(device, static_cast<Stream>(stream));
  });
}

Code graph_destroy(void* graph) {
  return answer(__func__, [&] {
    expect(graph != nullptr, invalid_handle);
    delete static_cast<SharedGraph*>(graph);
    --live_objects;
  });
}

Code graph_destroy_executable(void* executable) {
  return graph_destroy(executable);
}

}  // namespace ucclep::doubles
