// SPDX-License-Identifier: Apache-2.0
// Threads and processes of one machine. The sender's CPU copies into the peer's memory and puts the immediate into the
// peer's ring: a transport without hardware, on which everything above can be tested.
#pragma once
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace ucclep::transport {

std::unique_ptr<Transport> make_loopback(const std::string& argument);

}  // namespace ucclep::transport
