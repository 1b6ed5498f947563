// SPDX-License-Identifier: Apache-2.0
// What becomes of communicators that are left when the process exits.
#pragma once
#include <string>

#include "host/context/communicator.hpp"

namespace ucclep {

// From now on, when this process exits with a status other than 0, which says that it failed, the peers of all its
// communicators hear of it at once. And exit() waits for communicators that other threads are destroying: their peers
// would take a rank that goes in the middle of that for one that has died.
void watch_process_end();

// Ends what runs on the communicator and what waits for it. record: for this rank; why: for its peers, may be empty.
void abort_comm(ucclEpComm& comm, const std::string& record, const std::string& why);

}  // namespace ucclep
