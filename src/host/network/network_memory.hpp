// SPDX-License-Identifier: Apache-2.0
// P11: where the windows lie that NICs read and write, the network's and the user's. In the memory of the GPUs where
// all ranks can have it so, else in pinned host memory. It is found out by trying: once for a communicator, and for
// each group with its whole window, as there may be less of a GPU within reach of NICs than there is of its memory.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "device/device.hpp"
#include "proxy/connect.hpp"
#include "transport/transport.hpp"

struct ucclEpComm;

namespace ucclep {

struct NetworkMemory {
  enum class Way {
    host,        // NICs reach memory of the host
    dma_buf,     // that of this rank's GPU, too, by dma-bufs
    by_address,  // and by its addresses: peer memory, FI_HMEM
  };
  Way way = Way::host;
  NicWritesReach readers = NicWritesReach::owner;  // GPUs that read this rank's
  FlushRule flush = FlushRule::nothing;

  bool in_device() const { return way != Way::host; }  // the same on all ranks
  std::string text() const;
};

// Collective, by the proxies' NICs. UCCLEP_NETWORK_MEMORY=device where that cannot be: Error(ucclEpNotSupported) on all
// ranks, with the reason of the first that cannot.
NetworkMemory choose_network_memory(const ucclEpComm& comm, Deadline deadline);

// Of a group, on this rank.
struct NetworkWindow {
  NetworkMemory where;
  std::shared_ptr<SharedMemory> memory;
};
// Collective. Where the communicator's windows lie, if NICs get hold of so much on all ranks; else in host memory.
// Error, on all ranks: there is not so much memory, or, ucclEpNotSupported, UCCLEP_NETWORK_MEMORY=device.
NetworkWindow share_network_window(const ucclEpComm& comm, const NetworkMemory& memory, uint64_t bytes,
                                   Deadline deadline);

// Memory as it is given to NICs, which have it when it is registered.
struct NicRegion {
  transport::Memory memory;
  Fd dma_buf;
};
// Error(ucclEpNotSupported): NICs cannot get hold of it in that way.
NicRegion nic_region(Device& device, const NetworkMemory& where, const SharedMemory& memory);

// What proxies call between an arrival and its word. Empty: no flush is needed.
std::function<void()> flush_of(Device& device, const NetworkMemory& where);

// The NICs of this rank's proxies: those of the plan, or one without a name. Error: no such transport, or what it
// lacks.
std::vector<proxy::NicConfig> nics_of(const ucclEpComm& comm);

}  // namespace ucclep
