// SPDX-License-Identifier: Apache-2.0
// An example of a plugin: libucclep_transport_example.so offers the loopback transport through the C ABI. A vendor's
// own has its NIC in the place of `Endpoint`; the rest is what any C++ plugin looks like.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/transport.hpp"

struct ucclEpTransportEndpoint {
  std::unique_ptr<ucclep::transport::Transport> transport;
  std::unique_ptr<ucclep::transport::Endpoint> endpoint;
};

namespace {

// No exception crosses the C ABI.
template <class Body>
ucclEpResult_t guarded(ucclEpTransportError_t* why, Body&& body) noexcept {
  try {
    body();
    return ucclEpSuccess;
  } catch (const ucclep::Error& error) {
    std::strncpy(why->text, error.what(), sizeof(why->text) - 1);
    return error.code();
  } catch (const std::exception& error) {
    std::strncpy(why->text, error.what(), sizeof(why->text) - 1);
    return ucclEpInternalError;
  }
}

ucclEpResult_t open(const char* argument, const ucclEpTransportConfig_t* config, ucclEpTransportEndpoint_t* endpoint,
                    ucclEpTransportError_t* why) {
  return guarded(why, [&] {
    auto opened = std::make_unique<ucclEpTransportEndpoint>();
    opened->transport = ucclep::transport::make_loopback(argument);
    opened->endpoint = opened->transport->open(*config);
    *endpoint = opened.release();
  });
}

void close(ucclEpTransportEndpoint_t endpoint) {
  delete endpoint;
}

void traits(ucclEpTransportEndpoint_t endpoint, ucclEpTransportTraits_t* traits) {
  *traits = endpoint->endpoint->traits();
}

ucclEpResult_t address(ucclEpTransportEndpoint_t endpoint, void* address, size_t* length, ucclEpTransportError_t* why) {
  return guarded(why, [&] {
    const ucclep::transport::Address own = endpoint->endpoint->address();
    const size_t room = std::exchange(*length, own.size());
    if (room < own.size()) ucclep::fail(ucclEpInvalidArgument, "room for {} of {} bytes", room, own.size());
    std::memcpy(address, own.data(), own.size());
  });
}

ucclEpResult_t connect(ucclEpTransportEndpoint_t endpoint, uint32_t peer, uint32_t self, const void* address,
                       size_t length, ucclEpTransportError_t* why) {
  return guarded(why,
                 [&] { endpoint->endpoint->connect(peer, self, {static_cast<const std::byte*>(address), length}); });
}

void disconnect(ucclEpTransportEndpoint_t endpoint, uint32_t peer) {
  endpoint->endpoint->disconnect(peer);
}

ucclEpResult_t register_region(ucclEpTransportEndpoint_t endpoint, const ucclEpTransportMemory_t* memory,
                               uint32_t* region, ucclEpTransportKey_t* key, ucclEpTransportError_t* why) {
  return guarded(why, [&] { *region = endpoint->endpoint->register_region(*memory, key); });
}

ucclEpResult_t deregister_region(ucclEpTransportEndpoint_t endpoint, uint32_t region, ucclEpTransportError_t* why) {
  return guarded(why, [&] { endpoint->endpoint->deregister_region(region); });
}

ucclEpResult_t import_region(ucclEpTransportEndpoint_t endpoint, uint32_t peer, const ucclEpTransportKey_t* key,
                             uint32_t* remote_region, ucclEpTransportError_t* why) {
  return guarded(why, [&] { *remote_region = endpoint->endpoint->import_region(peer, *key); });
}

void release_region(ucclEpTransportEndpoint_t endpoint, uint32_t remote_region) {
  endpoint->endpoint->release_region(remote_region);
}

uint32_t post(ucclEpTransportEndpoint_t endpoint, uint32_t peer, const ucclEpTransportOperation_t* operations,
              uint32_t count) {
  return endpoint->endpoint->post(peer, {operations, count});
}

uint32_t poll(ucclEpTransportEndpoint_t endpoint, ucclEpTransportCompletion_t* completions, uint32_t count) {
  return endpoint->endpoint->poll({completions, count});
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ucclEpTransportPlugin_t* ucclEpTransportPlugin(void) {
  static const ucclEpTransportPlugin_t plugin = {UCCLEP_TRANSPORT_ABI,
                                                 sizeof(ucclEpTransportPlugin_t),
                                                 "example",
                                                 open,
                                                 close,
                                                 traits,
                                                 address,
                                                 connect,
                                                 disconnect,
                                                 register_region,
                                                 deregister_region,
                                                 import_region,
                                                 release_region,
                                                 post,
                                                 poll};
  return &plugin;
}
