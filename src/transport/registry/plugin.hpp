// SPDX-License-Identifier: Apache-2.0
// Transports that are not built in: libucclep_transport_NAME.so, found as dlopen finds libraries.
#pragma once
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace ucclep::transport {

// Throws Error: no such library, no entry, another ABI, a table with holes.
std::unique_ptr<Transport> load_plugin(const std::string& name, const std::string& argument);

}  // namespace ucclep::transport
