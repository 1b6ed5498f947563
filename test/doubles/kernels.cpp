// SPDX-License-Identifier: Apache-2.0
// Modules and launches: the library's kernels for the host, by the names that they have in GPU code. A kernel gets the
// bytes that the launch's parameters point to.
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "device/host/kernel_table.hpp"
#include "doubles/capture.hpp"
#include "doubles/embedded_code.hpp"
#include "doubles/exports.hpp"

namespace ucclep::doubles {
namespace {

struct LoadedModule;
struct LoadedFunction {
  const executor::KernelRegistration* kernel;
  LoadedModule* module;
  unsigned max_shared_bytes;
};
struct LoadedModule {
  std::map<std::string, LoadedFunction> functions;
  std::atomic<bool> launched = false;
};

std::mutex mutex;
std::map<Module, std::unique_ptr<LoadedModule>> modules;

LoadedModule& module_of(Module module) {
  const std::lock_guard lock(mutex);
  const auto found = modules.find(module);
  expect(found != modules.end(), invalid_handle);
  return *found->second;
}
LoadedFunction& function_of(Function function) {
  expect(function != nullptr, invalid_handle);
  return *reinterpret_cast<LoadedFunction*>(function);
}

}  // namespace

Code module_load(Module* module, const void* image) {
  return answer(__func__, [&] {
    current_gpu();
    expect(std::strcmp(static_cast<const char*>(image), host_kernels<wave>) == 0, no_binary_for_gpu);
    auto loaded = std::make_unique<LoadedModule>();
    *module = reinterpret_cast<Module>(loaded.get());
    const std::lock_guard lock(mutex);
    modules.emplace(*module, std::move(loaded));
    ++live_objects;
  });
}

Code module_unload(Module module) {
  return answer(__func__, [&] {
    current_gpu();
    const std::lock_guard lock(mutex);
    expect(modules.erase(module) == 1, invalid_handle);
    --live_objects;
  });
}

Code module_function(Function* function, Module module, const char* name) {
  return answer(__func__, [&] {
    constexpr std::string_view prefix = "ucclep_";
    constexpr unsigned max_shared_by_default = 48 * 1024;
    const std::string_view text = name;
    expect(text.starts_with(prefix), not_found);
    const auto* kernel = executor::find_kernel(wave, name + prefix.size());
    expect(kernel != nullptr, not_found);
    LoadedModule& loaded = module_of(module);
    const auto [entry, is_new] =
        loaded.functions.try_emplace(name, LoadedFunction{kernel, &loaded, max_shared_by_default});
    expect(!is_new || !loaded.launched, not_supported);  // a driver would load it now, and wait for what runs
    *function = reinterpret_cast<Function>(&entry->second);
  });
}

Code function_set_attribute(Function function, int attribute, int value) {
  return answer(__func__, [&] {
    expect(attribute == function_max_dynamic_shared && value >= 0 && value <= shared_bytes, invalid_value);
    function_of(function).max_shared_bytes = static_cast<unsigned>(value);
  });
}

Code launch(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
            unsigned block_z, unsigned shared, Stream stream, void** args, void**) {
  return answer(__func__, [&] {
    Gpu& gpu = current_gpu();
    expect(!gpu.faulted, launch_failed);
    const LoadedFunction& loaded = function_of(function);
    loaded.module->launched = true;
    expect(grid_x != 0 && grid_y == 1 && grid_z == 1 && block_x != 0 && block_x <= 1024 && block_y == 1 && block_z == 1,
           invalid_value);
    expect(shared <= loaded.max_shared_bytes, invalid_value);
    const auto* bytes = static_cast<const char*>(args[0]);
    const LaunchShape shape{grid_x, block_x, shared};
    enqueue(stream,
            [copy = std::vector<char>(bytes, bytes + loaded.kernel->arg_bytes), kernel = loaded.kernel, shape](
                Device& device, Stream in) { device.launch({kernel->name}, shape, copy.data(), copy.size(), in); });
  });
}

Code launch_cooperative(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, Stream stream, void** args) {
  if (grid_x > num_sms) return cooperative_launch_too_large;
  return launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, args, nullptr);
}

// An early start changes nothing that anybody may rely on: here launches of a stream run one after the other.
Code launch_with(const LaunchConfig* config, Function function, void** args, void** extra) {
  return answer(__func__, [&] {
    const LaunchConfig& c = *config;
    for (unsigned i = 0; i < c.num_attributes; ++i) {
      expect(c.attributes[i].name == early_start.name && c.attributes[i].value == 1, invalid_value);
    }
    const Code code = launch(function, c.grid_x, c.grid_y, c.grid_z, c.block_x, c.block_y, c.block_z, c.shared_bytes,
                             c.stream, args, extra);
    expect(code == success, code);
  });
}

}  // namespace ucclep::doubles
