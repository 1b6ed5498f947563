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

Graph::Graph(const GraphDriver& driver, ucclEpStream_t stream, const std::function<void()>& body) : driver_(driver) {
  const GraphApi& api = driver.api();
  // The strictest mode that leaves other ranks alone: a global capture forbids the whole process what is not captured.
  const int mode = ranks_are_processes() ? capture_global : capture_thread_local;
  GraphDriver::check(api.begin_capture(stream, mode), "beginning a capture");
  try {
    body();
  } catch (...) {
    if (api.end_capture(stream, &graph_) == 0) api.destroy(graph_);
    throw;
  }
  GraphDriver::check(api.end_capture(stream, &graph_), "ending a capture");
  GraphDriver::check(api.instantiate(&executable_, graph_, 0), "instantiating a graph");
}

Graph::~Graph() {
  if (std::uncaught_exceptions() > 0) return;  // a replay may still run
  driver_.api().destroy_executable(executable_);
  driver_.api().destroy(graph_);
}

void Graph::launch(ucclEpStream_t stream) const {
  GraphDriver::check(driver_.api().launch(executable_, stream), "launching a graph");
}

}  // namespace ucclep::test
