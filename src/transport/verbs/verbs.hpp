// SPDX-License-Identifier: Apache-2.0
// NICs of InfiniBand and RoCE through libibverbs: "verbs", or "verbs:DEVICE".
#pragma once
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace ucclep::transport {

std::unique_ptr<Transport> make_verbs(const std::string& device);

// What the port of a device speaks ("InfiniBand, subnet fe80000000000000", "RoCE v2 by IPv4"). Throws Error as opening
// it does: no such device, no active port.
std::string verbs_network(const std::string& device);

}  // namespace ucclep::transport
