// SPDX-License-Identifier: Apache-2.0
#include "gpu_count.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace ucclep::perf {
namespace {

struct Vendor {
  const char *device, *library, *init, *count;
};
constexpr Vendor vendors[] = {{"cuda", "libcuda.so.1", "cuInit", "cuDeviceGetCount"},
                              {"hip", "libamdhip64.so.6", "hipInit", "hipGetDeviceCount"}};

// The library is going to open the driver too: it stays open.
int count_of(const Vendor& vendor) {
  void* library = dlopen(vendor.library, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, vendor.init));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, vendor.count));
  int gpus = 0;
  if (init == nullptr || count == nullptr || init(0) != 0 || count(&gpus) != 0) return 0;
  return gpus;
}

}  // namespace

int gpu_count(const std::string& device) {
  const char* said = device == "auto" ? std::getenv("UCCLEP_DEVICE") : nullptr;
  const std::string wanted = said != nullptr ? said : device;
  for (const Vendor& vendor : vendors) {
    if (wanted != "auto" && wanted != vendor.device) continue;
    if (const int gpus = count_of(vendor); gpus > 0) return gpus;
  }
  return 0;
}

}  // namespace ucclep::perf
