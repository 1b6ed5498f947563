// SPDX-License-Identifier: Apache-2.0
// Graphs of a GPU's driver, as a framework makes them of a stream that the library works in.
#pragma once
#include <functional>

#include "support/ep.hpp"
#include "support/graph_api.hpp"

namespace ucclep::test {

// The driver of a communicator's GPU, whose primary context is current for the calling thread meanwhile.
class GraphDriver {
 public:
  explicit GraphDriver(ucclEpComm_t comm);
  ~GraphDriver();
  GraphDriver(const GraphDriver&) = delete;
  GraphDriver& operator=(const GraphDriver&) = delete;

  const GraphApi& api() const { return api_; }
  // Throws Failure for every code but 0.
  static void check(int code, const char* what);

 private:
  template <class Function>
  Function function(const char* in_cuda, const char* in_hip) const;

  bool hip_ = false;
  void* library_ = nullptr;
  GraphApi api_{};
  int ordinal_ = 0;
};

// What a body enqueues in a stream. Launched any number of times.
class Graph {
 public:
  Graph(const GraphDriver& driver, ucclEpStream_t stream, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(ucclEpStream_t stream) const;

 private:
  const GraphDriver& driver_;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace ucclep::test
