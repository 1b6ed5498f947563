// SPDX-License-Identifier: Apache-2.0
// The interface of all transports inside the library. What everything means is written in ucclep/transport.h, whose
// structs are used here as they are. Setup functions throw Error; post and poll neither throw nor allocate.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ucclep/transport.h"

namespace ucclep::transport {

using Memory = ucclEpTransportMemory_t;
using Key = ucclEpTransportKey_t;
using Operation = ucclEpTransportOperation_t;
using Completion = ucclEpTransportCompletion_t;
using Config = ucclEpTransportConfig_t;
using Traits = ucclEpTransportTraits_t;
using Address = std::vector<std::byte>;

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual const Traits& traits() const = 0;

  virtual Address address() const = 0;
  virtual void connect(uint32_t peer, uint32_t self, std::span<const std::byte> address) = 0;
  virtual void disconnect(uint32_t peer) = 0;

  virtual uint32_t register_region(const Memory& memory, Key* key) = 0;
  virtual void deregister_region(uint32_t region) = 0;
  virtual uint32_t import_region(uint32_t peer, const Key& key) = 0;
  virtual void release_region(uint32_t remote_region) = 0;

  virtual uint32_t post(uint32_t peer, std::span<const Operation> operations) noexcept = 0;
  virtual uint32_t poll(std::span<Completion> completions) noexcept = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Thread-safe. The transport outlives its endpoints.
  virtual std::unique_ptr<Endpoint> open(const Config& config) = 0;
  // False: it stays within a machine, and refuses a NIC's name.
  virtual bool takes_nics() const { return true; }
};

// "faulty, loopback, ofi, verbs": those that need no plugin.
std::string built_in_transports();

// name: "loopback", "ofi:tcp", "faulty:loopback", or "NAME[:ARGUMENT]" of a plugin.
// Throws Error(ucclEpInvalidArgument) for a name that nothing answers to, ucclEpNotSupported for what this machine
// lacks.
std::unique_ptr<Transport> make_transport(const std::string& name);

// What this machine has to reach other machines with.
struct Offer {
  std::string transport;  // as make_transport takes it
  std::string network;    // "RoCE v2 by IPv4": two machines with the same are taken to reach each other
  std::string lack;       // where network is empty: what is missing
};
// Fastest first, and the same transports on every machine. nic: the NIC that verbs is to use; empty: any. It opens
// libraries and devices, which takes tens of milliseconds.
std::vector<Offer> offers(const std::string& nic);

}  // namespace ucclep::transport
