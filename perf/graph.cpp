// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "api.hpp"

namespace ucclep::perf {
namespace {

constexpr int capture_relaxed = 2;

void expect_success(int code, const char* call) {
  if (code != 0) throw PerfError(fmt::format("{} failed: the driver returned code {}", call, code));
}

// A function of a driver that libucclep has opened already.
class DriverLibrary {
 public:
  explicit DriverLibrary(const char* name) : name_(name), library_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw PerfError(fmt::format("--graph: cannot open the driver: {}", dlerror()));
  }
  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr)
      throw PerfError(fmt::format("--graph: {} has no function {}: install a newer driver", name_, name));
  }

 private:
  const char* name_;
  void* library_;  // stays open, as the driver does
};

// Both vendors' names differ in how they begin, and in one suffix.
struct Names {
  const char *library, *prefix, *begin_capture;
};
constexpr Names cuda{"libcuda.so.1", "cu", "StreamBeginCapture_v2"};
constexpr Names hip{"libamdhip64.so.6", "hip", "StreamBeginCapture"};

const Names& vendor_of(int device) {
  if (device == UCCLEP_DEVICE_CUDA) return cuda;
  if (device == UCCLEP_DEVICE_HIP) return hip;
  throw PerfError("--graph needs GPUs: it times launches of their driver");
}

}  // namespace

GraphApi open_graph_api(int device, int index) {
  const Names& vendor = vendor_of(device);
  const DriverLibrary library(vendor.library);
  const auto find = [&](auto& function, const std::string& name) {
    library.find(function, (vendor.prefix + name).c_str());
  };
  GraphApi api;
  find(api.begin_capture, vendor.begin_capture);
  find(api.end_capture, "StreamEndCapture");
  find(api.instantiate, "GraphInstantiateWithFlags");
  find(api.launch, "GraphLaunch");
  find(api.destroy, "GraphDestroy");
  find(api.destroy_executable, "GraphExecDestroy");

  // Graphs belong to a context, and the library leaves none behind in this thread.
  int (*get_device)(int*, int);
  int (*retain_context)(void**, int);
  int (*set_context)(void*);
  find(get_device, "DeviceGet");
  find(retain_context, "DevicePrimaryCtxRetain");
  find(set_context, "CtxSetCurrent");
  int ordinal = 0;
  void* context = nullptr;
  expect_success(get_device(&ordinal, index), "opening a device");
  expect_success(retain_context(&context, ordinal), "retaining the device's context");  // for the life of the process
  expect_success(set_context(context), "making the context current");
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
