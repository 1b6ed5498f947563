// SPDX-License-Identifier: Apache-2.0
// Memory that every rank of a communicator brings and the ranks of its domain reach: the windows of a group, and those
// of the user.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/deadline.hpp"
#include "bootstrap/shared_objects.hpp"
#include "device/device.hpp"

struct ucclEpComm;

namespace ucclep {

struct PeerMemory {
  // By rank, as this process reaches it, the own among them; none of a rank in another domain.
  std::vector<std::shared_ptr<SharedMemory>> of;
  std::vector<uint64_t> bytes;  // by rank, those of other domains too
  Publication published;        // of the own memory, to ranks of this process
};

// Collective: threads of a process share the object, other processes map what its ticket describes. Fails on all ranks
// or on none. call: the function of the API, for the message. least: bytes that each rank has to bring, as was agreed.
PeerMemory exchange_memory(ucclEpComm& comm, std::shared_ptr<SharedMemory> own, const char* call, Deadline deadline,
                           uint64_t least = 0);

}  // namespace ucclep
