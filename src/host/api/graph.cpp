// SPDX-License-Identifier: Apache-2.0
// Graphs of the host device: a stream's calls, captured once and run again. What runs is what any device runs, so these
// show without a GPU that no operation needs the host while it runs.
#include "base/best_effort.hpp"
#include "host/boundary/guard.hpp"
#include "host/context/communicator.hpp"
#include "host/group/handle.hpp"

namespace ucclep {
namespace {

StreamCapture& stream_capture(const ucclEpComm& comm) {
  StreamCapture* capture = comm.device->stream_capture();
  if (capture == nullptr) {
    fail(ucclEpNotSupported,
         "{}: graphs of libucclep exist on the host device only; capture the stream with the GPU's own run-time, which "
         "all operations of libucclep support",
         comm.traits.name);
  }
  return *capture;
}

ucclEpGraph& checked_graph(const ucclEpComm& comm, ucclEpGraph_t graph) {
  require(graph, "graph");
  const auto found = comm.graphs.find(graph);
  if (found == comm.graphs.end()) {
    fail(ucclEpInvalidArgument, "graph {} was not made by ucclEpStreamEndCapture on this communicator",
         static_cast<void*>(graph));
  }
  return *found->second;
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpStreamBeginCapture(ucclEpComm_t comm, ucclEpStream_t stream) {
  return guarded("ucclEpStreamBeginCapture", comm, [&] {
    StreamCapture& capture = stream_capture(usable(comm));
    if (stream == nullptr) fail(ucclEpInvalidArgument, "stream is NULL: the default stream cannot be captured");
    capture.begin_capture(checked_stream(*comm, stream));
  });
}

// Ends the capture after a fatal record too: only so can the stream be destroyed.
ucclEpResult_t ucclEpStreamEndCapture(ucclEpComm_t comm, ucclEpStream_t stream, ucclEpGraph_t* graph) {
  return guarded("ucclEpStreamEndCapture", comm, [&] {
    require(comm, "comm");
    StreamCapture& capture = stream_capture(*comm);
    require(graph, "graph");
    auto made = std::make_unique<ucclEpGraph>(capture.end_capture(checked_stream(*comm, stream)));
    comm->faults->throw_if_fatal();
    *graph = made.get();
    comm->graphs.emplace(made.get(), std::move(made));
  });
}

ucclEpResult_t ucclEpGraphLaunch(ucclEpComm_t comm, ucclEpGraph_t graph, ucclEpStream_t stream) {
  return guarded("ucclEpGraphLaunch", comm, [&] {
    stream_capture(usable(comm));
    checked_graph(*comm, graph).recorded->launch(checked_stream(*comm, stream));
  });
}

ucclEpResult_t ucclEpGraphDestroy(ucclEpComm_t comm, ucclEpGraph_t graph) {
  if (graph == nullptr) return ucclEpSuccess;
  return guarded_destroying_part("ucclEpGraphDestroy", comm, [&] {
    require(comm, "comm");
    stream_capture(*comm);
    checked_graph(*comm, graph);
    comm->graphs.erase(graph);
    for (ucclEpGroup_t group : comm->groups) {
      best_effort("graph", "memory of handles is not freed before their group is destroyed",
                  [&] { release_retired(*group); });
    }
  });
}
