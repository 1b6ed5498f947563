// SPDX-License-Identifier: Apache-2.0
// Processes of one machine hand each other memory: each offers a descriptor (a memfd, a GPU memory handle) and receives
// those of its peers through SCM_RIGHTS over abstract unix sockets, which leave nothing behind in any file system.
#pragma once
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"

namespace ucclep {

class Bootstrap;

// Collective over all ranks of the bootstrap. peers: the ranks of this node with which descriptors are exchanged;
// "a is a peer of b" must hold both ways. Ranks of this process and this rank itself are skipped: they share pointers
// (shared_objects.hpp). fd stays the caller's; -1: this rank offers none. Returns nranks entries, empty where none
// came. Fails on all ranks with the same Error or on none.
std::vector<Fd> exchange_fds(Bootstrap& bootstrap, int fd, const std::vector<int>& peers, Deadline deadline);

}  // namespace ucclep
