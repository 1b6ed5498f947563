// SPDX-License-Identifier: Apache-2.0
// The functions of a GPU driver that capture a stream into a graph and run it, as libcuda and libamdhip64 name them:
// for tests, which do with them what a framework does.
#pragma once

namespace ucclep::test {

// Whom a capture forbids what could disturb it: every thread, or nobody.
inline constexpr int capture_global = 0, capture_thread_local = 1, capture_relaxed = 2;

struct GraphApi {
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*instantiate)(void** executable, void* graph, unsigned long long flags);
  int (*launch)(void* executable, void* stream);
  int (*destroy_executable)(void* executable);
  int (*destroy)(void* graph);
};

template <class Visit>
void each_graph_function(GraphApi& api, Visit&& visit) {
  visit(api.begin_capture, "cuStreamBeginCapture_v2", "hipStreamBeginCapture");
  visit(api.end_capture, "cuStreamEndCapture", "hipStreamEndCapture");
  visit(api.instantiate, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags");
  visit(api.launch, "cuGraphLaunch", "hipGraphLaunch");
  visit(api.destroy_executable, "cuGraphExecDestroy", "hipGraphExecDestroy");
  visit(api.destroy, "cuGraphDestroy", "hipGraphDestroy");
}

}  // namespace ucclep::test
