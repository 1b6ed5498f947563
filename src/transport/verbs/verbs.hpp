// SPDX-License-Identifier: Apache-2.0
// NICs of InfiniBand and RoCE through libibverbs: "verbs", or "verbs:DEVICE".
#pragma once
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace ucclep::transport {

std::unique_ptr<Transport> make_verbs(const std::string& device);

}  // namespace ucclep::transport
