// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "api.hpp"

namespace ucclep::perf {
namespace {

constexpr int capture_relaxed = 2;

void expect_success(int code, const char* call) {
  if (code != 0) throw PerfError(fmt::format("{}: the driver's code {}", call, code));
}

// A function of a driver that libucclep has opened already.
class DriverLibrary {
 public:
  explicit DriverLibrary(const char* name) : name_(name), library_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw PerfError(fmt::format("--graph: {}", dlerror()));
  }
  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) throw PerfError(fmt::format("--graph: {} has no {}", name_, name));
  }

 private:
  const char* name_;
  void* library_;  // stays open, as the driver does
};

// Graphs belong to a context, and the library leaves none behind in this thread.
void make_current_cuda(const DriverLibrary& library, int index) {
  int (*get)(int*, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  library.find(get, "cuDeviceGet");
  library.find(retain, "cuDevicePrimaryCtxRetain");
  library.find(set_current, "cuCtxSetCurrent");
  int device = 0;
  void* context = nullptr;
  expect_success(get(&device, index), "cuDeviceGet");
  expect_success(retain(&context, device), "cuDevicePrimaryCtxRetain");  // for the life of the process
  expect_success(set_current(context), "cuCtxSetCurrent");
}

}  // namespace

GraphApi open_graph_api(int device, int index) {
  GraphApi api;
  if (device == UCCLEP_DEVICE_CUDA) {
    const DriverLibrary library("libcuda.so.1");
    make_current_cuda(library, index);
    library.find(api.begin_capture, "cuStreamBeginCapture_v2");
    library.find(api.end_capture, "cuStreamEndCapture");
    library.find(api.instantiate, "cuGraphInstantiateWithFlags");
    library.find(api.launch, "cuGraphLaunch");
    library.find(api.destroy, "cuGraphDestroy");
    library.find(api.destroy_executable, "cuGraphExecDestroy");
  } else if (device == UCCLEP_DEVICE_HIP) {
    const DriverLibrary library("libamdhip64.so.6");
    int (*set_device)(int);
    library.find(set_device, "hipSetDevice");
    expect_success(set_device(index), "hipSetDevice");
    library.find(api.begin_capture, "hipStreamBeginCapture");
    library.find(api.end_capture, "hipStreamEndCapture");
    library.find(api.instantiate, "hipGraphInstantiateWithFlags");
    library.find(api.launch, "hipGraphLaunch");
    library.find(api.destroy, "hipGraphDestroy");
    library.find(api.destroy_executable, "hipGraphExecDestroy");
  } else {
    throw PerfError("--graph needs GPUs: the host device of this version captures nothing");
  }
  return api;
}

Graph::Graph(const GraphApi& api, ucclEpStream_t stream, const std::function<void()>& operation)
    : api_(api), stream_(stream) {
  expect_success(api_.begin_capture(stream_, capture_relaxed), "beginning a capture");
  void* graph = nullptr;
  try {
    operation();
  } catch (...) {
    api_.end_capture(stream_, &graph);
    throw;
  }
  expect_success(api_.end_capture(stream_, &graph), "ending a capture");
  const int code = api_.instantiate(&executable_, graph, 0);
  api_.destroy(graph);
  expect_success(code, "instantiating a graph");
}

Graph::~Graph() {
  if (executable_ != nullptr) api_.destroy_executable(executable_);
}

void Graph::launch() const {
  expect_success(api_.launch(executable_, stream_), "launching a graph");
}

}  // namespace ucclep::perf
