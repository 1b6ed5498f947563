// SPDX-License-Identifier: Apache-2.0
#include "host/group/handle.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "host/boundary/guard.hpp"
#include "host/group/masks.hpp"

namespace ucclep {
namespace {

// A graph that is still there may use the memory.
bool in_graph(const KnownRouting& routing) {
  return routing.in_unknown_graph ||
         std::ranges::any_of(routing.graphs, [](const auto& graph) { return !graph.expired(); });
}

}  // namespace

// The kernels' own count of Updates in memory that the caller may have used for something else meanwhile says nothing:
// what the host waits for begins anew with words of its own.
void begin_routing(ucclEpHandle& handle) {
  if (!handle.new_counts) return;
  // What is in flight, or in a graph, may still write the counts of before.
  auto before = std::make_shared<KnownRouting>(std::exchange(*handle.routing, {}));
  handle.group->retired.push_back({Workspace(), std::move(before)});
  handle.routing->counts = std::move(handle.new_counts);
}

void note_call(ucclEpHandle& handle, bool captured) {
  if (!captured) {
    ++handle.routing->updates_called;
    handle.routing->awaited_sequence = 0;
    return;
  }
  handle.routing->captured = true;
  const uint64_t after_calls = 2 * static_cast<uint64_t>(handle.routing->updates_called),
                 now = load(handle.routing->counts->sequence);
  handle.routing->awaited_sequence = std::max(after_calls, (now + 1) / 2 * 2) + 2;
}

void note_capture(ucclEpHandle& handle, ucclEpStream_t stream) {
  if (!handle.group->captured) return;
  KnownRouting& routing = *handle.routing;
  StreamCapture* const capture = handle.group->comm->device->stream_capture();
  if (capture == nullptr) {
    routing.in_unknown_graph = true;
    return;
  }
  std::erase_if(routing.graphs, [](const auto& graph) { return graph.expired(); });
  routing.graphs.push_back(capture->lifetime(stream));
}

void release_retired(ucclEpGroup& group) {
  if (group.retired.empty() || group.work.wait(Deadline::after_ms(0)) != ucclEpSuccess) return;
  std::erase_if(group.retired, [](const ucclEpGroup::Retired& one) { return !in_graph(*one.routing); });
}

ucclEpHandle& usable(ucclEpHandle_t handle) {
  require(handle, "handle");
  check_not_evicted(usable(handle->group));
  return *handle;
}

}  // namespace ucclep
