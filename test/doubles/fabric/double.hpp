// SPDX-License-Identifier: Apache-2.0
// A libfabric.so.1 for machines without NICs: UCCLEP_DOUBLE_PROVIDERS lists the providers that it has, by the names of
// the rows of providers.cpp, for example "efa-direct,tcp". Each has two domains, PROVIDER_0 and PROVIDER_1, that reach
// each other within a process. It refuses what goes beyond a provider's limits and what the provider's mode bits
// forbid. These are written here a second time: nothing is taken from the library.
#pragma once
#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>

namespace ucclep::test {

struct ProviderRow {
  static constexpr size_t unknown = ~size_t{0};
  const char* row;
  const char *provider, *fabric;
  uint64_t caps;  // beside FI_MSG and FI_RMA
  uint64_t mode;  // what its user has to bear
  int mr_mode;
  size_t key_bytes, data_bytes;  // of a region's key, of an immediate
  size_t sends, receives;        // sizes of the queues
  size_t inject;
  uint64_t max_message;
  size_t inject_rma, max_rma;  // what fi_getopt says, or that it does not know the option
  size_t regions;
  bool ordered;          // delivers in the order of posting
  bool events;           // an immediate needs a region that was registered for events
  int p2p;               // FI_OPT_FI_HMEM_P2P: 0: it does not know the option, 1: takes it, 2: says that it is required
  unsigned connects_in;  // the first operations for a peer find it not connected yet
};

// What was asked for last, and what happened since the library was opened.
struct FabricSeen {
  uint64_t caps;
  int mr_mode;
  uint32_t api_version;
  size_t completions, peers;
  uint64_t region_flags;
  uint64_t writes, doorbells, injected;
  uint64_t overtaken;        // writes that were carried out before earlier ones of their endpoint
  uint64_t spoilt_contexts;  // that the user wrote to, or used twice
};

constexpr const char* fabric_seen_symbol = "ucclep_fabric_double_seen";
using FabricSeenFunction = const FabricSeen* (*)();

}  // namespace ucclep::test
