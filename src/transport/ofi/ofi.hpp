// SPDX-License-Identifier: Apache-2.0
// Everything that libfabric reaches: "ofi:PROVIDER", or "ofi" for the best one that reaches other machines.
#pragma once
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace ucclep::transport {

std::unique_ptr<Transport> make_ofi(const std::string& provider);

// "libfabric's PROVIDER". Throws Error: there is no libfabric, or it has no such provider here.
std::string ofi_network(const std::string& provider);

}  // namespace ucclep::transport
