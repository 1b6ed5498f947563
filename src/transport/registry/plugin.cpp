// SPDX-License-Identifier: Apache-2.0
#include "transport/registry/plugin.hpp"

#include <dlfcn.h>

#include <string>
#include <utility>

#include "base/error.hpp"

namespace ucclep::transport {
namespace {

// Calls a setup function of the plugin, and throws what it returns.
template <class Function, class... Args>
void call(const ucclEpTransportPlugin_t& plugin, const char* what, Function function, Args... args) {
  ucclEpTransportError_t why{};
  const ucclEpResult_t code = function(args..., &why);
  why.text[sizeof(why.text) - 1] = '\0';
  if (code == ucclEpSuccess) return;
  fail(code, "transport {}: {}: {}", plugin.name, what, why.text[0] != '\0' ? why.text : "it gave no reason");
}

class PluginEndpoint : public Endpoint {
 public:
  PluginEndpoint(const ucclEpTransportPlugin_t& plugin, ucclEpTransportEndpoint_t endpoint)
      : plugin_(plugin), endpoint_(endpoint) {
    plugin_.traits(endpoint_, &traits_);
  }
  ~PluginEndpoint() override { plugin_.close(endpoint_); }

  const Traits& traits() const override { return traits_; }
  Address address() const override {
    Address address(256);
    size_t length = address.size();
    if (plugin_.address(endpoint_, address.data(), &length, &ignored_) != ucclEpSuccess) {
      address.resize(std::max(length, address.size()));
      length = address.size();
      call(plugin_, "address", plugin_.address, endpoint_, static_cast<void*>(address.data()), &length);
    }
    address.resize(std::min(length, address.size()));
    return address;
  }
  void connect(uint32_t peer, uint32_t self, std::span<const std::byte> address) override {
    call(plugin_, "connect", plugin_.connect, endpoint_, peer, self, static_cast<const void*>(address.data()),
         address.size());
  }
  void disconnect(uint32_t peer) override { plugin_.disconnect(endpoint_, peer); }
  uint32_t register_region(const Memory& memory, Key* key) override {
    uint32_t region = 0;
    call(plugin_, "register_region", plugin_.register_region, endpoint_, &memory, &region, key);
    return region;
  }
  void deregister_region(uint32_t region) override {
    call(plugin_, "deregister_region", plugin_.deregister_region, endpoint_, region);
  }
  uint32_t import_region(uint32_t peer, const Key& key) override {
    uint32_t region = 0;
    call(plugin_, "import_region", plugin_.import_region, endpoint_, peer, &key, &region);
    return region;
  }
  void release_region(uint32_t region) override { plugin_.release_region(endpoint_, region); }
  uint32_t post(uint32_t peer, std::span<const Operation> operations) noexcept override {
    return plugin_.post(endpoint_, peer, operations.data(), static_cast<uint32_t>(operations.size()));
  }
  uint32_t poll(std::span<Completion> completions) noexcept override {
    return plugin_.poll(endpoint_, completions.data(), static_cast<uint32_t>(completions.size()));
  }

 private:
  const ucclEpTransportPlugin_t& plugin_;
  ucclEpTransportEndpoint_t endpoint_;
  Traits traits_{};
  mutable ucclEpTransportError_t ignored_{};
};

class Plugin : public Transport {
 public:
  Plugin(const ucclEpTransportPlugin_t& plugin, std::string argument)
      : plugin_(plugin), argument_(std::move(argument)) {}
  std::unique_ptr<Endpoint> open(const Config& config) override {
    ucclEpTransportEndpoint_t endpoint = nullptr;
    call(plugin_, "open", plugin_.open, argument_.c_str(), &config, &endpoint);
    return std::make_unique<PluginEndpoint>(plugin_, endpoint);
  }

 private:
  const ucclEpTransportPlugin_t& plugin_;
  std::string argument_;
};

// The name of the first function that is missing; null: all are there.
const char* hole_in(const ucclEpTransportPlugin_t& plugin) {
  const std::pair<const char*, bool> functions[] = {{"open", plugin.open != nullptr},
                                                    {"close", plugin.close != nullptr},
                                                    {"traits", plugin.traits != nullptr},
                                                    {"address", plugin.address != nullptr},
                                                    {"connect", plugin.connect != nullptr},
                                                    {"disconnect", plugin.disconnect != nullptr},
                                                    {"register_region", plugin.register_region != nullptr},
                                                    {"deregister_region", plugin.deregister_region != nullptr},
                                                    {"import_region", plugin.import_region != nullptr},
                                                    {"release_region", plugin.release_region != nullptr},
                                                    {"post", plugin.post != nullptr},
                                                    {"poll", plugin.poll != nullptr}};
  for (const auto& [name, there] : functions) {
    if (!there) return name;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Transport> load_plugin(const std::string& name, const std::string& argument) {
  constexpr const char* plain_letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const bool plain = name.find_first_not_of(plain_letters) == std::string::npos;
  if (name.empty() || !plain) {
    fail(ucclEpInvalidArgument, "'{}' is not the name of a transport: expected {}, or the name of a plugin", name,
         built_in_transports());
  }
  const std::string file = "libucclep_transport_" + name + ".so";
  // Never closed: threads or handlers of the plugin may run until the process ends.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(ucclEpInvalidArgument,
         "the transport '{}' does not exist: built in are {}, and a plugin of that name cannot be loaded: {}", name,
         built_in_transports(), dlerror());
  }
  const auto entry = reinterpret_cast<ucclEpTransportEntry_t>(dlsym(library, UCCLEP_TRANSPORT_ENTRY));
  if (entry == nullptr)
    fail(ucclEpInvalidArgument, "{} is not a transport plugin: it has no function {}", file, UCCLEP_TRANSPORT_ENTRY);
  const ucclEpTransportPlugin_t* plugin = entry();
  if (plugin == nullptr)
    fail(ucclEpNotSupported, "transport plugin {}: it returned no functions for this machine", file);
  if (plugin->abi != UCCLEP_TRANSPORT_ABI || plugin->size != sizeof(*plugin)) {
    fail(ucclEpInvalidArgument,
         "{} was built for version {} of the transport ABI ({} bytes), this library has {} ({}): build it with this "
         "version's ucclep/transport.h (docs/porting.md)",
         file, plugin->abi, plugin->size, UCCLEP_TRANSPORT_ABI, sizeof(*plugin));
  }
  if (plugin->name == nullptr) fail(ucclEpInvalidArgument, "transport plugin {}: `name` is NULL", file);
  if (const char* hole = hole_in(*plugin)) fail(ucclEpInvalidArgument, "transport plugin {}: `{}` is NULL", file, hole);
  return std::make_unique<Plugin>(*plugin, argument);
}

}  // namespace ucclep::transport
