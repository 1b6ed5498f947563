// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/verbs.hpp"

#include <utility>

#include "transport/verbs/endpoint.hpp"

namespace ucclep::transport {
namespace {

class Verbs : public Transport {
 public:
  explicit Verbs(std::string device) : library_(verbs::Library::get()), device_(std::move(device)) {}
  std::unique_ptr<Endpoint> open(const Config& config) override {
    const bool named = config.nic != nullptr && *config.nic != '\0';
    return std::make_unique<verbs::VerbsEndpoint>(library_, verbs::open_device(library_, named ? config.nic : device_),
                                                  config);
  }

 private:
  const verbs::Library& library_;
  std::string device_;
};

}  // namespace

std::string verbs_network(const std::string& device) {
  const verbs::Library& library = verbs::Library::get();
  return network_of(library, verbs::open_device(library, device));
}

std::unique_ptr<Transport> make_verbs(const std::string& device) {
  return std::make_unique<Verbs>(device);
}

}  // namespace ucclep::transport
