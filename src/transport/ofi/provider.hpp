// SPDX-License-Identifier: Apache-2.0
// Which of libfabric's providers and domains an endpoint uses, and what it asks of its user. All differences between
// providers are read off fi_info; no provider has code of its own.
#pragma once
#include <string>

#include "transport/ofi/library.hpp"
#include "transport/transport.hpp"

namespace ucclep::transport::ofi {

// provider: a name of libfabric's ("efa", "tcp", "verbs;ofi_rxm"), or empty for the first of those that reach another
// machine. Throws Error: no such provider here (with what there is), no such NIC (likewise).
Info choose(const Library& library, const std::string& provider, const Config& config);

// Is there such a provider, with all that an endpoint asks for?
bool has(const Library& library, const std::string& provider);

// What the user of the domain has to do, by mr_mode and mode.
struct Duties {
  bool virtual_addresses, provider_keys, bind_regions, device_memory, region_events, post_receives;
  size_t key_bytes;  // of the keys that are not the provider's to choose
  explicit Duties(const fi_info& info);
};

}  // namespace ucclep::transport::ofi
