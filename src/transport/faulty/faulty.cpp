// SPDX-License-Identifier: Apache-2.0
#include "transport/faulty/faulty.hpp"

#include <utility>

#include "base/error.hpp"
#include "transport/faulty/endpoint.hpp"

namespace ucclep::transport {
namespace {

class Faulty : public Transport {
 public:
  Faulty(const FaultSettings& settings, std::unique_ptr<Transport> inner)
      : settings_(settings), inner_(std::move(inner)) {}
  std::unique_ptr<Endpoint> open(const Config& config) override {
    return std::make_unique<FaultyEndpoint>(settings_, *inner_, config);
  }
  bool takes_nics() const override { return inner_->takes_nics(); }

 private:
  FaultSettings settings_;
  std::unique_ptr<Transport> inner_;
};

}  // namespace

std::unique_ptr<Transport> make_faulty(const std::string& argument) {
  const size_t colon = argument.find(':');
  if (colon == std::string::npos) {
    fail(ucclEpInvalidArgument,
         "the transport faulty:{} names no transport below it: expected faulty:SETTINGS:TRANSPORT, as in "
         "faulty:seed=1:loopback",
         argument);
  }
  const FaultSettings settings = parse_faults(argument.substr(0, colon));
  return std::make_unique<Faulty>(settings, make_transport(argument.substr(colon + 1)));
}

const FaultStatistics& fault_statistics(const Endpoint& endpoint) {
  return dynamic_cast<const FaultyEndpoint&>(endpoint).statistics();
}

}  // namespace ucclep::transport
