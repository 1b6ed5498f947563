// SPDX-License-Identifier: Apache-2.0
// An operation captured into a graph of the GPU's driver, and replayed. The driver's functions are found at run time.
#pragma once
#include <functional>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

// The few functions of libcuda or libamdhip64 that it takes: both have the same signatures.
struct GraphApi {
  int (*begin_capture)(void* stream, int mode) = nullptr;
  int (*end_capture)(void* stream, void** graph) = nullptr;
  int (*instantiate)(void** executable, void* graph, unsigned long long flags) = nullptr;
  int (*launch)(void* executable, void* stream) = nullptr;
  int (*destroy)(void* graph) = nullptr;
  int (*destroy_executable)(void* executable) = nullptr;
};

// device: UCCLEP_DEVICE_CUDA or _HIP, of that index, which becomes the thread's current one. Throws when the driver
// cannot do it.
GraphApi open_graph_api(int device, int index);

class Graph {
 public:
  // What operation() enqueues on the stream.
  Graph(const GraphApi& api, ucclEpStream_t stream, const std::function<void()>& operation);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() const;

 private:
  const GraphApi api_;
  ucclEpStream_t stream_;
  void* executable_ = nullptr;
};

}  // namespace ucclep::perf
