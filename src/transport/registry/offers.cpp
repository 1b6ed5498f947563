// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "transport/ofi/ofi.hpp"
#include "transport/transport.hpp"
#include "transport/verbs/verbs.hpp"

namespace ucclep::transport {
namespace {

template <class Network>
Offer offer(const std::string& transport, Network&& network) {
  try {
    return {transport, network(), ""};
  } catch (const Error& error) {
    const std::string text = error.what(), prefix = transport.substr(0, transport.find(':')) + ": ";
    return {transport, "", text.starts_with(prefix) ? text.substr(prefix.size()) : text};
  }
}

}  // namespace

std::vector<Offer> offers(const std::string& nic) {
  return {offer("verbs", [&] { return verbs_network(nic); }), offer("ofi:efa", [] { return ofi_network("efa"); }),
          offer("ofi:cxi", [] { return ofi_network("cxi"); }), offer("ofi:tcp", [] { return ofi_network("tcp"); })};
}

}  // namespace ucclep::transport
