// SPDX-License-Identifier: Apache-2.0
#include "transport/ofi/library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace ucclep::transport::ofi {
namespace {

constexpr uint32_t oldest = FI_VERSION(1, 17), wanted = FI_VERSION(1, 18);

template <class Function>
void load(void* library, const char* file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    fail(ucclEpNotSupported, "ofi: {} has no function {}: install libfabric 1.17 or newer", file, name);
}

}  // namespace

const Library& Library::get() {
  constinit static MadeOnce<Library> library;
  return library.get([] { return open("libfabric.so.1"); });
}

Library Library::open(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(ucclEpNotSupported, "ofi: cannot open libfabric: {}", dlerror());
  Library library{};
  load(handle, file, "fi_getinfo", library.getinfo);
  load(handle, file, "fi_freeinfo", library.freeinfo);
  load(handle, file, "fi_dupinfo", library.dupinfo);
  load(handle, file, "fi_fabric", library.fabric);
  load(handle, file, "fi_strerror", library.strerror);
  load(handle, file, "fi_version", library.version);
  if (library.version() < oldest) {
    fail(ucclEpNotSupported, "ofi: {} is libfabric {}.{}, this library needs 1.17 or newer", file,
         FI_MAJOR(library.version()), FI_MINOR(library.version()));
  }
  return library;
}

uint32_t Library::api_version() const {
  return std::min(version(), wanted);
}

std::string Library::words(int64_t code) const {
  return strerror(static_cast<int>(std::abs(code)));
}

}  // namespace ucclep::transport::ofi
