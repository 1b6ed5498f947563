// SPDX-License-Identifier: Apache-2.0
#include "support/gpu_contexts.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "support/ep.hpp"

namespace ucclep::test {
namespace {

struct ContextApi {
  int (*init)(unsigned flags);
  int (*device_get)(int* device, int ordinal);
  int (*retain)(void** context, int device);
};

ContextApi open_context_api(bool hip) {
  void* const library = dlopen(hip ? "libamdhip64.so.6" : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  require(library != nullptr, "the driver's library is not there");
  const auto find = [&](auto& function, const char* in_cuda, const char* in_hip) {
    void* const found = dlsym(library, hip ? in_hip : in_cuda);
    require(found != nullptr, std::string("the driver has no ") + (hip ? in_hip : in_cuda));
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  ContextApi api{};
  find(api.init, "cuInit", "hipInit");
  find(api.device_get, "cuDeviceGet", "hipDeviceGet");
  find(api.retain, "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain");
  return api;
}

bool hold_all() {
  const ContextApi api = open_context_api(test_device() == UCCLEP_DEVICE_HIP);
  require(api.init(0) == 0, "the driver cannot be initialised");
  for (int gpu = 0; gpu < test_gpus(); ++gpu) {
    int device = 0;
    void* context = nullptr;
    require(api.device_get(&device, gpu) == 0 && api.retain(&context, device) == 0,
            "the context of GPU " + std::to_string(gpu) + " cannot be held");
  }
  return true;
}

}  // namespace

void hold_gpu_contexts() {
  if (test_gpus() == 0 || std::getenv("UCCLEP_TEST_HOLDS_CONTEXTS") == nullptr) return;
  [[maybe_unused]] static const bool held = hold_all();
}

}  // namespace ucclep::test
