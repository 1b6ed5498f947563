// SPDX-License-Identifier: Apache-2.0
#include "host/memory/peer_memory.hpp"

#include <algorithm>
#include <utility>

#include "bootstrap/agreement.hpp"
#include "bootstrap/fd_exchange.hpp"
#include "host/context/communicator.hpp"

namespace ucclep {
namespace {

std::shared_ptr<SharedMemory> reach(ucclEpComm& comm, int rank, uint64_t object, const MemoryTicket& ticket, Fd fd) {
  try {
    if (!comm.bootstrap->same_process(rank)) return comm.device->map(ticket, std::move(fd));
    auto memory = std::static_pointer_cast<SharedMemory>(lookup({comm.bootstrap->comm_id(), rank, object}));
    if (!memory) fail(ucclEpInternalError, "the rank did not publish its memory");
    comm.device->allow(*memory);
    return memory;
  } catch (const Error& error) {
    fail(error.code(), "cannot map the memory of rank {}: {}", rank, error.what());
  }
}

}  // namespace

PeerMemory exchange_memory(ucclEpComm& comm, std::shared_ptr<SharedMemory> own, const char* call, Deadline deadline,
                           uint64_t least) {
  Bootstrap& bootstrap = *comm.bootstrap;
  const auto ranks = static_cast<size_t>(comm.nranks());
  const uint64_t object = comm.next_object++;
  PeerMemory memory;
  memory.published = publish({bootstrap.comm_id(), comm.rank(), object}, own);
  const std::vector<MemoryTicket> tickets = bootstrap.allgather(own->ticket(), deadline);  // all are published
  for (const MemoryTicket& ticket : tickets) memory.bytes.push_back(ticket.bytes);
  std::vector<Fd> fds(ranks);
  const bool by_descriptor =
      std::any_of(tickets.begin(), tickets.end(), [](const MemoryTicket& ticket) { return ticket.has_descriptor(); });
  if (by_descriptor) fds = exchange_fds(bootstrap, own->fd(), bootstrap.node_ranks(), deadline);
  Agreement agreement(call);
  agreement.attempt([&] {
    for (size_t r = 0; r < ranks; ++r) {
      const int rank = static_cast<int>(r);
      if (comm.topology.of(rank).domain != comm.topology.of(comm.rank()).domain) {
        memory.of.emplace_back();
        continue;
      }
      if (tickets[r].bytes < least) {
        fail(ucclEpRemoteError, "rank {} offers {} bytes of memory, expected at least {}", rank, tickets[r].bytes,
             least);
      }
      memory.of.push_back(rank == comm.rank() ? own : reach(comm, rank, object, tickets[r], std::move(fds[r])));
    }
  });
  agreement.settle(bootstrap, deadline);
  return memory;
}

}  // namespace ucclep
