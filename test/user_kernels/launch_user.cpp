// SPDX-License-Identifier: Apache-2.0
#include "launch_user.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "host/group/handle.hpp"
#include "support/ep.hpp"

// From user_code.S.
extern "C" const char user_code[];
extern "C" const uint64_t user_code_bytes;

namespace ucclep::test {
namespace {

void check(int code, const char* what) {
  require(code == 0, std::string(what) + ": the driver answered " + std::to_string(code));
}

// libcuda, which the library has open.
template <class Function>
Function driver_function(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  require(driver != nullptr, "libcuda.so.1 is not there");
  void* found = dlsym(driver, name);
  require(found != nullptr, std::string("libcuda has no ") + name);
  return reinterpret_cast<Function>(found);
}

// The module of the calling thread's context, which is made that of the device. Both stay as long as the process.
void* module_on(int device_index) {
  static std::mutex mutex;
  static std::map<void*, void*> modules;
  int device = 0;
  void* context = nullptr;
  check(driver_function<int (*)(int*, int)>("cuDeviceGet")(&device, device_index), "cuDeviceGet");
  check(driver_function<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device), "retaining a context");
  check(driver_function<int (*)(void*)>("cuCtxSetCurrent")(context), "making a context current");
  const std::lock_guard lock(mutex);
  void*& module = modules[context];
  if (module == nullptr) {
    check(driver_function<int (*)(void**, const void*)>("cuModuleLoadData")(&module, user_code), "loading a module");
  }
  return module;
}

void* function_on(int device_index, const std::string& kernel) {
  require(user_code_bytes != 0, "the test was built without a compiler for GPUs");
  void* function = nullptr;
  const std::string symbol = "ucclep_" + kernel;
  check(driver_function<int (*)(void**, void*, const char*)>("cuModuleGetFunction")(&function, module_on(device_index),
                                                                                    symbol.c_str()),
        symbol.c_str());
  return function;
}

void launch_on_gpu(int device_index, const std::string& kernel, const void* args, ucclEpStream_t stream,
                   const UserGrid& grid) {
  void* const function = function_on(device_index, kernel);
  constexpr int max_dynamic_shared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  const auto shared = static_cast<unsigned>(grid.shared_bytes);
  check(driver_function<int (*)(void*, int, int)>("cuFuncSetAttribute")(function, max_dynamic_shared,
                                                                        static_cast<int>(shared)),
        "cuFuncSetAttribute");
  void* parameters[] = {const_cast<void*>(args)};
  using Launch =
      int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  check(driver_function<Launch>("cuLaunchKernel")(function, grid.blocks, 1, 1, grid.threads, 1, 1, shared, stream,
                                                  parameters, nullptr),
        "cuLaunchKernel");
}

}  // namespace

void launch_user(ucclEpHandle_t handle, const std::string& kernel, const void* args, size_t bytes,
                 ucclEpStream_t stream, UserGrid grid) {
  Device& device = *handle->group->comm->device;
  if (device.traits().kind == UCCLEP_DEVICE_CUDA) {
    launch_on_gpu(device.traits().index, kernel, args, stream, grid);
    return;
  }
  device.launch({kernel.c_str(), false}, {grid.blocks, grid.threads, grid.shared_bytes}, args, bytes, stream);
}

void load_user(ucclEpHandle_t handle, const std::string& kernel) {
  const DeviceTraits& traits = handle->group->comm->device->traits();
  if (traits.kind == UCCLEP_DEVICE_CUDA) function_on(traits.index, kernel);
}

UserRoom user_room(ucclEpHandle_t handle) {
  const ucclEpComm& comm = *handle->group->comm;
  return {comm.traits.num_sms, comm.traits.shared_bytes, comm.shares_device, comm.traits.kind == UCCLEP_DEVICE_HOST};
}

}  // namespace ucclep::test
