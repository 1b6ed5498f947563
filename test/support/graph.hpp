// SPDX-License-Identifier: Apache-2.0
// Graphs of a stream that the library works in, made as a framework does on a GPU and a program on the host device.
#pragma once
#include <functional>
#include <memory>

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

// How streams of a communicator are captured: by the driver of its GPU, or on the host device by the library.
class Capturing {
 public:
  static std::unique_ptr<Capturing> of(ucclEpComm_t comm);
  virtual ~Capturing() = default;
  virtual void begin(ucclEpStream_t stream) const = 0;
  virtual void* end(ucclEpStream_t stream) const = 0;  // a graph that can be launched
  virtual void launch(void* graph, ucclEpStream_t stream) const = 0;
  virtual void destroy(void* graph) const = 0;
};

// What a body enqueues in a stream. Launched any number of times.
class Graph {
 public:
  Graph(const Capturing& capturing, ucclEpStream_t stream, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(ucclEpStream_t stream) const { capturing_.launch(graph_, stream); }

 private:
  const Capturing& capturing_;
  void* graph_ = nullptr;
};

}  // namespace ucclep::test
