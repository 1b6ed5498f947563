// SPDX-License-Identifier: Apache-2.0
#include "support/graph.hpp"

#include <dlfcn.h>

#include <exception>

#include "support/ranks.hpp"

namespace ucclep::test {

void GraphDriver::check(int code, const char* what) {
  require(code == 0, std::string(what) + ": the driver answered " + std::to_string(code));
}

template <class Function>
Function GraphDriver::function(const char* in_cuda, const char* in_hip) const {
  void* found = dlsym(library_, hip_ ? in_hip : in_cuda);
  require(found != nullptr, std::string("the driver has no ") + (hip_ ? in_hip : in_cuda));
  return reinterpret_cast<Function>(found);
}

GraphDriver::GraphDriver(ucclEpComm_t comm) {
  ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
  ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
  hip_ = info.device == UCCLEP_DEVICE_HIP;
  // The library has it open: this finds the same one, and it stays.
  library_ = dlopen(hip_ ? "libamdhip64.so.6" : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  require(library_ != nullptr, "the driver's library is not there");
  each_graph_function(api_, [this](auto& member, const char* in_cuda, const char* in_hip) {
    member = function<std::remove_reference_t<decltype(member)>>(in_cuda, in_hip);
  });
  void* context = nullptr;
  check(function<int (*)(int*, int)>("cuDeviceGet", "hipDeviceGet")(&ordinal_, info.device_index), "opening a device");
  check(function<int (*)(void**, int)>("cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain")(&context, ordinal_),
        "retaining its context");
  check(function<int (*)(void*)>("cuCtxSetCurrent", "hipCtxSetCurrent")(context), "making it current");
}

GraphDriver::~GraphDriver() {
  function<int (*)(void*)>("cuCtxSetCurrent", "hipCtxSetCurrent")(nullptr);
  function<int (*)(int)>("cuDevicePrimaryCtxRelease_v2", "hipDevicePrimaryCtxRelease")(ordinal_);
  dlclose(library_);
}

namespace {

class DriverCapturing : public Capturing {
 public:
  explicit DriverCapturing(ucclEpComm_t comm) : driver_(comm) {}

  // The strictest mode that leaves other ranks alone: a global capture forbids the whole process what is not captured.
  void begin(ucclEpStream_t stream) const override {
    const int mode = ranks_are_processes() ? capture_global : capture_thread_local;
    GraphDriver::check(driver_.api().begin_capture(stream, mode), "beginning a capture");
  }
  void* end(ucclEpStream_t stream) const override {
    void* graph = nullptr;
    void* executable = nullptr;
    GraphDriver::check(driver_.api().end_capture(stream, &graph), "ending a capture");
    const int instantiated = driver_.api().instantiate(&executable, graph, 0);
    driver_.api().destroy(graph);
    GraphDriver::check(instantiated, "instantiating a graph");
    return executable;
  }
  void launch(void* graph, ucclEpStream_t stream) const override {
    GraphDriver::check(driver_.api().launch(graph, stream), "launching a graph");
  }
  void destroy(void* graph) const override { driver_.api().destroy_executable(graph); }

 private:
  GraphDriver driver_;
};

class HostCapturing : public Capturing {
 public:
  explicit HostCapturing(ucclEpComm_t comm) : comm_(comm) {}

  void begin(ucclEpStream_t stream) const override {
    ok(ucclEpStreamBeginCapture(comm_, stream), "ucclEpStreamBeginCapture");
  }
  void* end(ucclEpStream_t stream) const override {
    ucclEpGraph_t graph = nullptr;
    ok(ucclEpStreamEndCapture(comm_, stream, &graph), "ucclEpStreamEndCapture");
    return graph;
  }
  void launch(void* graph, ucclEpStream_t stream) const override {
    ok(ucclEpGraphLaunch(comm_, static_cast<ucclEpGraph_t>(graph), stream), "ucclEpGraphLaunch");
  }
  void destroy(void* graph) const override { ucclEpGraphDestroy(comm_, static_cast<ucclEpGraph_t>(graph)); }

 private:
  ucclEpComm_t comm_;
};

}  // namespace

std::unique_ptr<Capturing> Capturing::of(ucclEpComm_t comm) {
  ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
  ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
  if (info.device == UCCLEP_DEVICE_HOST) return std::make_unique<HostCapturing>(comm);
  return std::make_unique<DriverCapturing>(comm);
}

Graph::Graph(const Capturing& capturing, ucclEpStream_t stream, const std::function<void()>& body)
    : capturing_(capturing) {
  capturing.begin(stream);
  try {
    body();
  } catch (...) {
    try {
      capturing.destroy(capturing.end(stream));
    } catch (const Failure&) {  // what the body met says more
    }
    throw;
  }
  graph_ = capturing.end(stream);
}

Graph::~Graph() {
  if (std::uncaught_exceptions() == 0) capturing_.destroy(graph_);  // else a replay may still run
}

}  // namespace ucclep::test
