// SPDX-License-Identifier: Apache-2.0
#include "topology/hwloc_xml.hpp"

#include <dlfcn.h>
#include <hwloc.h>
#include <hwloc/export.h>

#include <cerrno>
#include <memory>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace ucclep::topology {
namespace {

constexpr const char* library_name = "libhwloc.so.15";  // the ABI of hwloc 2

struct HwlocApi {
  decltype(&hwloc_get_api_version) get_api_version;
  decltype(&hwloc_topology_init) topology_init;
  decltype(&hwloc_topology_destroy) topology_destroy;
  decltype(&hwloc_topology_load) topology_load;
  decltype(&hwloc_topology_set_components) set_components;
  decltype(&hwloc_topology_set_io_types_filter) set_io_types_filter;
  decltype(&hwloc_topology_set_cache_types_filter) set_cache_types_filter;
  decltype(&hwloc_topology_export_xmlbuffer) export_xmlbuffer;
  decltype(&hwloc_free_xmlbuffer) free_xmlbuffer;
};

HwlocApi open_hwloc() {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) {
    fail(ucclEpNotSupported, "cannot explore this machine without hwloc (install Debian's package libhwloc15): {}",
         dlerror());
  }
  HwlocApi api{};
  const auto load = [library](auto& member, const char* name) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, name));
    if (member == nullptr) fail(ucclEpNotSupported, "{} has no function {}: install a newer hwloc", library_name, name);
  };
  load(api.get_api_version, "hwloc_get_api_version");
  load(api.topology_init, "hwloc_topology_init");
  load(api.topology_destroy, "hwloc_topology_destroy");
  load(api.topology_load, "hwloc_topology_load");
  load(api.set_components, "hwloc_topology_set_components");
  load(api.set_io_types_filter, "hwloc_topology_set_io_types_filter");
  load(api.set_cache_types_filter, "hwloc_topology_set_cache_types_filter");
  load(api.export_xmlbuffer, "hwloc_topology_export_xmlbuffer");
  load(api.free_xmlbuffer, "hwloc_free_xmlbuffer");
  if (api.get_api_version() >> 16 != HWLOC_API_VERSION >> 16) {
    fail(ucclEpNotSupported,
         "{} has version {:#x} of hwloc's interface, but this library was built for {:#x}: install that version",
         library_name, api.get_api_version(), HWLOC_API_VERSION);
  }
  return api;
}

const HwlocApi& hwloc() {
  constinit static MadeOnce<HwlocApi> api;
  return api.get(open_hwloc);
}

[[noreturn]] void refuse(const char* what) {
  fail(ucclEpSystemError, "hwloc: cannot {}: {}", what, errno_text(errno));
}

}  // namespace

std::string hwloc_xml() {
  const HwlocApi& api = hwloc();
  hwloc_topology_t topology = nullptr;
  if (api.topology_init(&topology) != 0) refuse("create a topology");
  const std::unique_ptr<hwloc_topology, decltype(api.topology_destroy)> owner(topology, api.topology_destroy);
  // They would open a GPU's run-time or an X display for what the PCI tree says as well; x86 would move this thread to
  // each CPU in turn, for what Linux says as well.
  for (const char* component : {"cuda", "nvml", "rsmi", "levelzero", "opencl", "gl", "x86"}) {
    api.set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  api.set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
  api.set_cache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);  // a dozen files in sysfs for each CPU
  if (api.topology_load(topology) != 0) refuse("explore this machine");
  char* buffer = nullptr;
  int size = 0;
  if (api.export_xmlbuffer(topology, &buffer, &size, 0) != 0) refuse("export its topology");
  std::string text(buffer);
  api.free_xmlbuffer(topology, buffer);
  return text;
}

}  // namespace ucclep::topology
